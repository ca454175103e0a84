"""SPRL's memory, choice and loss (Algorithm 1) against the schedules, and against Standard where they coincide."""

import pytest
import torch
import torch.nn.functional as F

from sprl import schedules
from sprl.core import Batch, Clock
from sprl.errors import InputError
from sprl.functional import resistance, shares
from sprl.labels import new_record
from sprl.methods import SPRL, Standard
from sprl.noise import corrupt

T, T1 = 40, 4


def no_pass():
    raise AssertionError("a pass over the data was made")


def labels_and_predictions(n=203, num_classes=5, seed=0):
    """Given labels of unequal classes, and predictions [N, C] without ties that agree with many of them."""
    torch.manual_seed(seed)
    y = torch.multinomial(torch.arange(1.0, num_classes + 1), n, replacement=True)
    return y, (torch.randn(n, num_classes) + 1.5 * F.one_hot(y, num_classes)).softmax(1)


def before_first_epoch(method, y, p, epochs=T):
    return new_record(torch.zeros_like(p)) | method.init(y, p.shape[1], epochs) | {"previous": p}


def epochs_of(method, y, p, epochs=T, predict=no_pass):
    """The memory before each epoch t = 1..T when every epoch predicts p."""
    memory = before_first_epoch(method, y, p, epochs)
    for t in range(1, epochs + 1):
        memory = memory | method.refresh(memory, y, Clock(t, epochs), predict)
        yield t, memory


def at_epoch(t, method, y, p, epochs=T, predict=no_pass):
    return dict(epochs_of(method, y, p, epochs, predict))[t]


def confident(y, p):
    return int((p[torch.arange(len(y)), y] >= 0.5).sum())


# The loss of a batch


def a_batch(n=203, size=16):
    y, p = labels_and_predictions(n)
    index = torch.randperm(n)[:size]
    return torch.randn(1, size, 5), Batch(index, y[index]), before_first_epoch(SPRL(T1=T1), y, p)


def test_all_chosen_without_resistance_is_standard():
    y, p = labels_and_predictions()
    method = SPRL(T1=T1, gamma_d=0.0, limit="none")
    logits, batch, _ = a_batch()
    standard = Standard().step(logits, batch, {})
    seen = 0
    for _, memory in epochs_of(method, y, p):
        if memory["chosen"].all():
            ours = method.step(logits, batch, memory)
            torch.testing.assert_close(ours.loss, standard.loss)
            assert torch.equal(ours.chosen, standard.chosen)
            seen += 1
    assert T1 + 1 < seen < T  # all through T1 + 1, not all in between, all again towards the end


def test_the_loss_is_equation_12b():
    logits, batch, memory = a_batch()
    memory |= {"gamma": torch.tensor(3.0), "chosen": torch.rand(203) < 0.5}
    step = SPRL(T1=T1).step(logits, batch, memory)
    v = memory["chosen"][batch.index]
    supervised = F.cross_entropy(logits[0][v], batch.y[v])
    log_p = logits[0].log_softmax(1)
    resisting = -(memory["previous"][batch.index] * log_p).sum() / len(batch.y)
    torch.testing.assert_close(step.loss, supervised + 3 * resisting)
    assert torch.equal(step.chosen, v.unsqueeze(0))


def test_a_batch_with_none_chosen_resists_only():
    logits, batch, memory = a_batch()
    logits.requires_grad_()
    memory |= {"gamma": torch.tensor(2.0), "chosen": torch.zeros(203, dtype=torch.bool)}
    step = SPRL(T1=T1).step(logits, batch, memory)
    torch.testing.assert_close(step.loss, 2 * resistance(logits, memory["previous"][batch.index]).mean())
    step.loss.backward()
    assert logits.grad.isfinite().all()
    assert not step.chosen.any()


def test_permuting_a_batch_changes_nothing():
    logits, batch, memory = a_batch()
    memory |= {"gamma": torch.tensor(2.0), "chosen": torch.rand(203) < 0.5}
    order = torch.randperm(16)
    method = SPRL(T1=T1)
    permuted = method.step(logits[:, order], Batch(batch.index[order], batch.y[order]), memory)
    torch.testing.assert_close(permuted.loss, method.step(logits, batch, memory).loss)


def test_normalised_divides_by_one_plus_gamma():
    logits, batch, memory = a_batch()
    memory |= {"gamma": torch.tensor(4.0)}
    plain, normalised = (SPRL(T1=T1, normalised=flag).step(logits, batch, memory).loss for flag in (False, True))
    torch.testing.assert_close(normalised, plain / 5)


# Which samples are chosen


@pytest.mark.parametrize("choice", ["all", "per-class"])
def test_as_many_are_chosen_as_equation_6_says(choice):
    y, p = labels_and_predictions()
    n = len(y)
    m = schedules.start_size(confident(y, p), n)
    assert n // 10 < m < n // 2  # neither clamp hides the count
    for t, memory in epochs_of(SPRL(T1=T1, choice=choice, limit="none"), y, p):
        assert int(memory["chosen"].sum()) == schedules.curriculum_size(t - 1, n=n, m=m, T=T, T1=T1)


@pytest.mark.parametrize("choice", ["all", "per-class"])
def test_all_are_chosen_through_the_epoch_after_warmup_then_m(choice):
    y, p = labels_and_predictions()
    sizes = {t: int(memory["chosen"].sum()) for t, memory in epochs_of(SPRL(T1=T1, choice=choice), y, p)}
    assert [sizes[t] for t in range(1, T1 + 2)] == [203] * (T1 + 1)
    assert sizes[T1 + 2] == confident(y, p)


def test_choice_over_all_takes_the_likeliest_labels():
    y, p = labels_and_predictions()
    likely = p[torch.arange(len(y)), y]
    chosen = at_epoch(T1 + 2, SPRL(T1=T1, choice="all"), y, p)["chosen"]
    assert likely[chosen].min() > likely[~chosen].max()


def test_choice_per_class_takes_the_same_share_of_each():
    y, p = labels_and_predictions()
    likely = p[torch.arange(len(y)), y]
    chosen = at_epoch(T1 + 2, SPRL(T1=T1), y, p)["chosen"]
    assert torch.equal(torch.bincount(y[chosen]), shares(int(chosen.sum()), torch.bincount(y)))
    for k in range(5):
        assert likely[chosen & (y == k)].min() > likely[~chosen & (y == k)].max()


@pytest.mark.parametrize("fields", [{"choice": "all"}, {"choice": "per-class"}, {"limit": "agreement"}, {"growth": "released"}])
def test_permuting_the_rows_permutes_the_choice(fields):
    y, p = labels_and_predictions()
    order = torch.randperm(len(y))
    method = SPRL(T1=T1, **fields)
    for t in (T1 + 2, 20, T):
        chosen, permuted = (at_epoch(t, method, *rows)["chosen"] for rows in ((y, p), (y[order], p[order])))
        assert torch.equal(permuted, chosen[order])


def test_refresh_leaves_the_memory_it_was_given():
    y, p = labels_and_predictions()
    method = SPRL(T1=T1)
    memory = at_epoch(T1 + 1, method, y, p)
    before = {name: value.clone() for name, value in memory.items()}
    new = method.refresh(memory, y, Clock(T1 + 2, T), no_pass)
    assert all(torch.equal(memory[name], value) for name, value in before.items())
    assert not torch.equal(new["chosen"], before["chosen"])


# Where the curriculum starts


def with_confident(count, y):
    """Predictions of three classes in which `count` given labels have a probability of at least one half."""
    p = torch.full((len(y), 3), 0.3)
    p[:, 0] += 0.1 * (y != 0)
    return torch.where((torch.arange(len(y)) < count).unsqueeze(1), F.one_hot(y, 3) * 0.7 + 0.1, p)


def test_confident_is_the_largest_count_of_warmup():
    y = torch.arange(100) % 3
    method, counts = SPRL(T1=T1), [20, 45, 30, 25, 60, 70]  # after epochs 1 to 6; warm-up ends with the fourth
    memory = before_first_epoch(method, y, torch.zeros(100, 3))
    for t, count in enumerate(counts, 2):
        memory |= {"previous": with_confident(count, y)}
        memory |= method.refresh(memory, y, Clock(t, T), no_pass)
        assert int(memory["confident"]) == max(counts[: min(t - 1, T1)])


def test_the_last_warmup_epoch_still_counts():
    y = torch.arange(100) % 3
    memory = before_first_epoch(SPRL(T1=T1), y, with_confident(33, y))
    assert int(SPRL(T1=T1).refresh(memory, y, Clock(T1 + 1, T), no_pass)["confident"]) == 33


def test_one_half_is_confident():
    y = torch.zeros(10, dtype=torch.int64)
    p = torch.tensor([[0.5, 0.5]] * 4 + [[0.49, 0.51]] * 6)
    memory = before_first_epoch(SPRL(T1=T1), y, p)
    assert int(SPRL(T1=T1).refresh(memory, y, Clock(2, T), no_pass)["confident"]) == 4


def test_confident_is_scaled_up_where_rows_were_not_visited():
    y = torch.arange(100) % 3
    p = with_confident(20, y)
    p[50:] = 0
    memory = before_first_epoch(SPRL(T1=T1), y, p)
    assert int(SPRL(T1=T1).refresh(memory, y, Clock(2, T), no_pass)["confident"]) == 40


@pytest.mark.parametrize("noise_rate", [0.0, 0.4, 0.5, 0.8, 0.9])
def test_a_known_noise_rate_sets_m(noise_rate):
    y, p = labels_and_predictions(n=1000)
    chosen = at_epoch(T1 + 2, SPRL(T1=T1, noise_rate=noise_rate, choice="all", limit="none"), y, p)["chosen"]
    expected = min(max(0.65 * (1 - noise_rate) * 1000, 100), 500)
    assert abs(int(chosen.sum()) - expected) <= 1


# Resistance


@pytest.mark.parametrize("gamma_d", [10.0, 50.0])
def test_gamma_is_equation_11(gamma_d):
    y, p = labels_and_predictions()
    gamma_max = schedules.largest_resistance(gamma_d, m=confident(y, p), n=len(y))
    gammas = [float(memory["gamma"]) for _, memory in epochs_of(SPRL(T1=T1, gamma_d=gamma_d), y, p)]
    expected = [schedules.resistance_weight(t, gamma_max=gamma_max, T=T, T1=T1) for t in range(1, T + 1)]
    assert gammas == pytest.approx(expected)
    assert gammas[-1] == gamma_max > 0


@pytest.mark.parametrize(("epochs", "gamma_d"), [(12, 2.0), (30, 5.0), (60, 10.0), (120, 10.0)])
def test_gamma_d_auto_is_gentler_in_short_schedules(epochs, gamma_d):
    y, p = labels_and_predictions()
    y = torch.where(torch.arange(len(y)) < len(y) // 2, (p.argmax(1) + 1 + torch.arange(len(y)) % 4) % 5, y)  # half of them wrong, evenly
    auto, told = (at_epoch(epochs, SPRL(T1=T1, gamma_d=g), y, p, epochs)["gamma"] for g in ("auto", gamma_d))
    torch.testing.assert_close(auto, told)


@pytest.mark.parametrize(("wrong", "gamma_d"), [(0, 0.0), (20, 10 * 0.25**1.5), (40, 10 * 0.5**1.5), (80, 10.0), (120, 10.0)])
def test_gamma_d_auto_is_gentler_where_few_labels_are_contradicted(wrong, gamma_d):
    clean = torch.arange(200) % 5
    y = torch.where(torch.arange(200) < wrong, (clean + 1 + torch.arange(200) // 5 % 4) % 5, clean)
    p = 0.6 * F.one_hot(clean, 5) + 0.08
    by_epoch = dict(epochs_of(SPRL(T1=T1), y, p, 60))
    torch.testing.assert_close(by_epoch[60]["gamma_d"], torch.tensor(gamma_d))
    assert float(by_epoch[T1]["gamma_d"]) == 10  # not known yet


def test_gamma_d_auto_is_settled_when_the_learning_rate_begins_to_fall():
    """What is memorised later is contradicted no longer: that must not lessen the resistance."""
    clean = torch.arange(200) % 5
    y = torch.where(torch.arange(200) < 60, (clean + 1 + torch.arange(200) // 5 % 4) % 5, clean)
    doubting, believing = (0.6 * F.one_hot(labels, 5) + 0.08 for labels in (clean, y))
    memory = before_first_epoch(SPRL(T1=T1), y, doubting, 60)
    for t in range(1, 61):
        memory |= {"previous": doubting if t <= schedules.decay_start(60) else believing}
        memory |= SPRL(T1=T1).refresh(memory, y, Clock(t, 60), no_pass)
    torch.testing.assert_close(memory["gamma_d"], torch.tensor(10 * 0.75**1.5))


def test_released_growth_starts_at_a_tenth_more_and_ramps_one_epoch_late():
    y, p = labels_and_predictions(n=200, seed=4)
    tenths = 10 * confident(y, p) // 200 + 1
    assert tenths < 5
    every = (T - 6 - T1) // (10 - tenths)
    for t, memory in epochs_of(SPRL(T1=T1, gamma_d=10.0, growth="released", limit="none"), y, p):
        assert int(memory["chosen"].sum()) == (20 * min(tenths + (t - 2 - T1) // every, 10) if t > T1 + 1 else 200)
        if t > T1 + 1:
            mu = (t - 1 - T1) / (T - T1)
            assert float(memory["gamma"]) == pytest.approx(10 * (10 - tenths) * schedules.resistance_ramp(mu))


def test_the_accidents_of_the_released_code_one_by_one():
    """Classes of 95 and 105 samples, of which 30 and 80 are confident: more than half of all, three and seven whole tenths of each."""
    y = (torch.arange(200) >= 95).long()
    sure = (torch.arange(200) < 30) | (torch.arange(200) >= 120)
    p = 0.4 + 0.2 * F.one_hot(torch.where(sure, y, 1 - y), 2)

    def counts(t, **fields):
        method = SPRL(T1=T1, growth="released", limit="none", **fields)
        return torch.bincount(y[at_epoch(t, method, y, p)["chosen"]], minlength=2).tolist()

    first, then = T1 + 2, T1 + 3
    assert counts(first) == counts(then) == [48, 52]
    assert counts(first, choice="tenths") == counts(then, choice="tenths") == [9 * 5, 10 * 5]
    assert counts(T, choice="tenths") == [90, 100]  # five of each never enter
    assert counts(first, start="last-class") == [9 * 4, 10 * 8]  # each its own, not held to five
    assert counts(then, start="last-class") == [48, 52]
    assert at_epoch(then, SPRL(T1=T1, start="last-class", noise_rate=0.5, limit="none"), y, p)["chosen"].sum() == 65


# The limit, and the other readings


def test_agreement_limits_each_class_but_leaves_one():
    y, p = labels_and_predictions()
    p[y == 0] = torch.tensor([0.1, 0.6, 0.1, 0.1, 0.1])  # nobody given class 0 agrees
    agree = torch.bincount(y[p.argmax(1) == y], minlength=5)
    assert agree[0] == 0
    for t, memory in epochs_of(SPRL(T1=T1, limit="agreement"), y, p):
        if t > T1 + 1:
            per_class = torch.bincount(y[memory["chosen"]], minlength=5)
            assert (per_class <= agree.clamp(min=1)).all()
            assert (per_class >= 1).all()
    assert torch.equal(per_class, agree.clamp(min=1))  # in the last epoch the limit is all that holds


def test_agreement_over_all_samples_limits_their_number():
    y, p = labels_and_predictions()
    chosen = at_epoch(T, SPRL(T1=T1, choice="all", limit="agreement"), y, p)["chosen"]
    assert int(chosen.sum()) == int((p.argmax(1) == y).sum())


@pytest.mark.parametrize(("kind", "limited"), [("symmetric:0.5", False), ("pair:0.4", True), ("pair:0.2", False)])
def test_limit_auto_is_for_many_labels_taken_for_one_other(kind, limited):
    clean = torch.arange(1000) % 10
    y = torch.from_numpy(corrupt(clean.numpy(), kind, 10, seed=0))
    p = F.one_hot(clean, 10) * 0.9 + 0.01
    seen = {t: bool(memory["limited"]) for t, memory in epochs_of(SPRL(T1=T1), y, p)}
    assert seen == {t: limited and t > T1 for t in range(1, T + 1)}
    chosen = at_epoch(T, SPRL(T1=T1), y, p)["chosen"]
    assert int(chosen.sum()) == (int((y == clean).sum()) if limited else 1000)


@pytest.mark.parametrize(("others", "limit", "gamma_d"), [(1, "auto", 50.0), (1, "none", 50.0), (5, "auto", 10.0), (9, "agreement", 10.0)])
def test_gamma_d_auto_is_by_how_many_classes_a_class_is_taken_for(others, limit, gamma_d):
    """One: pair noise. Some: people's mistakes. Nine, which are all: symmetric."""
    index = torch.arange(3000)
    clean, wrong = index % 10, index // 10 % 20 < 9
    y = torch.where(wrong, (clean + 1 + index // 200 % others) % 10, clean)
    p = F.one_hot(clean, 10) * 0.9 + 0.01
    assert at_epoch(T1 + 1, SPRL(T1=T1, limit=limit), y, p, 60)["gamma_d"].item() == pytest.approx(gamma_d)


def test_what_cannot_be_told_is_limited_and_resisted_moderately():
    y = torch.arange(50) % 2
    p = F.one_hot(torch.cat([y[:30], 1 - y[30:]]), 2) * 0.8 + 0.1
    memory = at_epoch(T1 + 2, SPRL(T1=T1), y, p)
    assert memory["limited"]
    assert memory["gamma_d"].item() == pytest.approx(10 * T / 60)


def test_evaluated_predictions_come_from_a_pass():
    y, recorded = labels_and_predictions()
    _, evaluated = labels_and_predictions(seed=1)
    expected = at_epoch(T1 + 2, SPRL(T1=T1), y, evaluated)
    memory = at_epoch(T1 + 2, SPRL(T1=T1, predictions="evaluated"), y, recorded, predict=lambda: evaluated)
    assert torch.equal(memory["chosen"], expected["chosen"])
    assert not torch.equal(memory["chosen"], at_epoch(T1 + 2, SPRL(T1=T1), y, recorded)["chosen"])


def test_readings_of_the_paper_and_of_the_released_code():
    published, released = SPRL.as_published(T1=20, gamma_d=10.0), SPRL.as_released(T1=20, gamma_d=10.0)
    assert published == SPRL(T1=20, gamma_d=10.0, choice="all", predictions="recorded", growth="eq6", limit="none")
    reading = {"choice": "tenths", "predictions": "evaluated", "growth": "released", "start": "last-class", "limit": "none"}
    assert released == SPRL(T1=20, gamma_d=10.0, **reading)
    assert SPRL.as_published(choice="per-class").choice == "per-class"


def test_while_T1_is_unknown_warmup_goes_on():
    y, p = labels_and_predictions()
    for _, memory in epochs_of(SPRL(), y, p):
        assert memory["chosen"].all()
        assert memory["gamma"] == 0
    assert int(memory["confident"]) == confident(y, p)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"T1": 40}, "T1 is 40 but must be at least 1 and less than the 40 epochs"),
        ({"T1": 0}, "T1 is 0 but must be at least 1"),
        ({"gamma_d": -1.0}, r"gamma_d is -1\.0 but must not be negative"),
        ({"K": 0}, "K is 0 but must be at least 1"),
        ({"noise_rate": 1.0}, r"the noise rate is 1\.0 but must be at least 0 and below 1"),
        ({"noise_rate": -0.1}, r"the noise rate is -0\.1"),
    ],
)
def test_hyper_parameters_that_do_not_fit(fields, message):
    with pytest.raises(InputError, match=message):
        SPRL(**fields).init(torch.arange(10) % 2, 2, epochs=40)
