"""What is recorded of each sample, and the table made of it."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl import labels
from sprl.errors import InputError, SprlWarning
from sprl.labels import (
    CALM,
    FLOOR,
    FORGET,
    Recorder,
    as_labels,
    label_quality,
    new_record,
    record,
    see,
    suggest,
    warn_if_few,
    warn_of_doubts,
)


def logits_of(p):
    return torch.tensor(p).log()


def recorded(p, y, visits=1):
    """A recorder that saw every sample so often, each time with these probabilities."""
    recorder = Recorder(y, num_classes=len(p[0]))
    for _ in range(visits):
        recorder.update(logits_of(p), torch.arange(len(y)))
    return recorder


def test_support_is_the_given_label_against_its_strongest_rival():
    seen = see(logits_of([[[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.25, 0.25, 0.5]]]), torch.tensor([0, 0, 1]))
    torch.testing.assert_close(seen.support, torch.tensor([0.6 / 0.9, 0.2 / 0.7, 0.25 / 0.75]))
    assert seen.contradicted.item() == pytest.approx(2 / 3)


def test_quality_by_a_slow_loop():
    """Three samples, batches of one and two, in any order: the weighted mean of support, the past fading."""
    torch.manual_seed(0)
    y = torch.tensor([0, 1, 2])
    memory = new_record(torch.zeros(3, 3))
    share, support, weight, visits = 0.0, [0.0] * 3, [0.0] * 3, [0] * 3
    for index in ([0], [1, 2], [2], [0, 1], [2, 0], [1]):
        logits = torch.randn(1, len(index), 3) * 2
        record(memory, see(logits, y[index]), torch.tensor(index))
        p = logits[0].softmax(1).tolist()
        given = [p[i][y[j]] for i, j in enumerate(index)]
        rival = [max(v for k, v in enumerate(p[i]) if k != y[j]) for i, j in enumerate(index)]
        against = sum(r > g for g, r in zip(given, rival, strict=True)) / len(index)
        share += (against - share) * len(index) / (len(index) + CALM)
        now = share**2 + FLOOR
        for g, r, j in zip(given, rival, index, strict=True):
            left = 1 - FORGET * (min(1, now * visits[j] / weight[j]) if visits[j] else 0)
            support[j], weight[j] = support[j] * left + now * g / (g + r), weight[j] * left + now
            visits[j] += 1
    assert memory["visits"].tolist() == visits
    assert label_quality(memory).tolist() == pytest.approx([s / w for s, w in zip(support, weight, strict=True)], rel=1e-5)


def test_the_last_prediction_is_kept():
    memory = new_record(torch.zeros(2, 2))
    for p in ([0.9, 0.1], [0.6, 0.4]):
        record(memory, see(logits_of([[p]]), torch.tensor([0])), torch.tensor([0]))
    torch.testing.assert_close(memory["previous"], torch.tensor([[0.6, 0.4], [0.0, 0.0]]))


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_a_prediction_that_is_not_finite_is_no_visit(bad):
    y = torch.tensor([0, 1, 1])
    p = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    memory, without = new_record(torch.zeros(3, 2)), new_record(torch.zeros(3, 2))
    broken = logits_of([p])
    broken[0, 1, 0] = bad
    for logits in (logits_of([p]), broken, logits_of([p])):
        record(memory, see(logits, y), torch.arange(3))
    assert memory["visits"].tolist() == [3, 2, 3]
    assert all(value.isfinite().all() for value in memory.values())
    record(without, see(logits_of([p]), y), torch.arange(3))
    assert torch.equal(memory["previous"], without["previous"])


def test_what_was_thought_before_memorising_outweighs_what_is_thought_after():
    """First both are contradicted, then every label is agreed with, for much longer: the contradicted stay suspicious."""
    y = [0] * 600
    doubtful = torch.arange(600) % 2 == 0
    before = torch.where(doubtful[:, None], torch.tensor([0.1, 0.9]), torch.tensor([0.9, 0.1])).log()
    recorder = Recorder(y, num_classes=2)
    for _ in range(5):
        recorder.update(before, torch.arange(600))
    for _ in range(50):
        recorder.update(logits_of([[0.99, 0.01]] * 600), torch.arange(600))
    quality = label_quality(recorder.memory)
    assert quality[doubtful].max() < 0.5 < quality[~doubtful].min()


def test_while_labels_are_contradicted_the_past_fades():
    """A label that was contradicted first and agreed with for long, while others are contradicted on, comes to be trusted."""
    recorder = Recorder([0] * 600, num_classes=2)
    always = torch.arange(600) >= 300
    for visit in range(60):
        now = always | (torch.arange(600) < 150 if visit < 10 else False)
        recorder.update(torch.where(now[:, None], torch.tensor([0.1, 0.9]), torch.tensor([0.9, 0.1])).log(), torch.arange(600))
    quality = label_quality(recorder.memory)
    assert quality[:150].min() > 0.8  # a plain mean would say 0.77
    assert quality[always].max() < 0.11


def test_a_sample_twice_in_one_batch_is_two_visits():
    memory = new_record(torch.zeros(1, 2))
    record(memory, see(logits_of([[[0.9, 0.1], [0.3, 0.7]]]), torch.tensor([0, 0])), torch.tensor([0, 0]))
    assert memory["visits"].tolist() == [2]
    assert label_quality(memory).item() == pytest.approx(0.6)


def test_two_networks_are_recorded_by_their_mean_probability():
    memory = new_record(torch.zeros(1, 2))
    record(memory, see(logits_of([[[0.9, 0.1]], [[0.5, 0.5]]]), torch.tensor([0])), torch.tensor([0]))
    torch.testing.assert_close(memory["previous"], torch.tensor([[0.7, 0.3]]))


def test_recording_carries_no_gradient():
    memory = new_record(torch.zeros(1, 2))
    record(memory, see(torch.zeros(1, 1, 2, requires_grad=True), torch.tensor([0])), torch.tensor([0]))
    assert not any(value.requires_grad for value in memory.values())


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-200, 200), st.floats(-200, 200)), min_size=1, max_size=30))
@settings(deadline=None, max_examples=50)
def test_quality_is_a_probability_whatever_the_logits(visits):
    recorder = Recorder([0, 1, 0, 1, 0], num_classes=2)
    for i, a, b in visits:
        recorder.update(torch.tensor([[a, b]]), torch.tensor([i]))
    quality = label_quality(recorder.memory)
    assert ((quality >= 0) & (quality <= 1)).all()


def test_rounding_takes_no_quality_beyond_one():
    assert label_quality({"support": torch.tensor([3.0000002]), "weight": torch.tensor([3.0])}).item() == 1


def test_a_suggestion_by_a_slow_loop():
    torch.manual_seed(0)
    p, y, wrong = torch.randn(50, 4).softmax(1), torch.randint(4, (50,)), torch.rand(50).double()
    best, confidence = suggest(p, y, wrong)
    for row, of, doubt, label, sure in zip(p.double(), y.tolist(), wrong.tolist(), best.tolist(), confidence.tolist(), strict=True):
        squares = [0.0 if k == of else row[k].item() ** 2 for k in range(4)]
        assert label == (of if doubt <= 0.5 else squares.index(max(squares)))
        assert sure == pytest.approx(1 - doubt if doubt <= 0.5 else doubt * max(squares) / sum(squares))
    assert (best == y).any()
    assert (best != y).any()


def two_heaps(size=200, wrong=60):
    """Two classes; the first `wrong` samples of the first were given it though the network is sure of the second."""
    torch.manual_seed(1)
    y = [0] * size + [1] * size
    sure = 1 / (1 + torch.exp(-(2.5 + 0.7 * torch.randn(2 * size))))
    toward = torch.tensor([1.0] * wrong + [0.0] * (size - wrong) + [1.0] * size)
    one = torch.where(toward > 0, sure, 1 - sure)
    return torch.stack([1 - one, one], 1).tolist(), y


def test_label_issues_of_two_heaps():
    p, y = two_heaps()
    frame = recorded(p, y).label_issues(classes=["cat", "dog"])
    assert list(frame) == ["is_label_issue", "label_quality", "wrong_probability", "given_label", "predicted_label", "confidence"]
    assert frame["is_label_issue"].tolist() == [True] * 60 + [False] * 340
    assert (frame["is_label_issue"] == (frame["wrong_probability"] > 0.5)).all()
    assert frame["given_label"].tolist() == ["cat"] * 200 + ["dog"] * 200
    assert frame["predicted_label"].tolist() == ["dog"] * 60 + ["cat"] * 140 + ["dog"] * 200
    assert frame["confidence"].tolist() == pytest.approx((frame["wrong_probability"] - 0.5).abs() + 0.5)


@pytest.mark.parametrize(("size", "flagged"), [(3, False), (4, True)])
def test_classes_of_three_samples_are_never_flagged(size, flagged):
    p, y = two_heaps()
    few = recorded([[*row, 0.0] for row in p] + [[0.98, 0.01, 0.01]] * size, y + [2] * size).label_issues()
    assert few["is_label_issue"][400:].tolist() == [flagged] * size
    assert few["wrong_probability"][400:].min() > 0.5


def test_samples_never_visited_are_not_flagged():
    p, y = two_heaps()
    recorder = Recorder([*y, 0], num_classes=2)
    recorder.update(logits_of(p), torch.arange(400))
    last = recorder.label_issues().iloc[-1]
    assert not last["is_label_issue"]
    assert last["label_quality"] == 1
    assert last["predicted_label"] == 0


def test_pred_probs_are_rows_of_probabilities_even_where_none_were_made():
    recorder = Recorder([0, 1, 1], num_classes=2)
    recorder.update(logits_of([[0.3, 0.7]]), torch.tensor([1]))
    assert recorder.pred_probs().tolist() == [[0.5, 0.5], [pytest.approx(0.3), pytest.approx(0.7)], [0.5, 0.5]]


def test_without_names_the_classes_are_numbers():
    with pytest.warns(SprlWarning, match=r"do not stand apart: .* are guesses then: review by rank"):  # of one sample
        frame = recorded([[0.1, 0.9]], [1]).label_issues()
    assert frame[["given_label", "predicted_label"]].to_numpy().tolist() == [[1, 1]]


@pytest.mark.parametrize("y", [[0, 2, 1], torch.tensor([0, 2, 1], dtype=torch.uint8), np.array([0, 2, 1], dtype=np.int32)])
def test_whole_numbers_of_any_kind_are_labels(y):
    labels = as_labels(y, 3)
    assert labels.dtype == torch.int64
    assert labels.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0.0, 1.0], r"one whole number a sample, got float64 of shape \(2,\)"),
        ([True, False], r"one whole number a sample, got bool"),
        ([[0, 1], [1, 0]], r"one whole number a sample, got int64 of shape \(2, 2\)"),
        ([0, 1, 3], r"labels must lie in 0\.\.2, got 0\.\.3"),
        (["a", "b"], r"one whole number a sample, got <U1"),
        ([], r"one whole number a sample, got float64 of shape \(0,\)"),
        ([-1, 1], r"labels must lie in 0\.\.2, got -1\.\.1"),
    ],
)
def test_what_are_no_labels(y, message):
    with pytest.raises(InputError, match=message):
        as_labels(y, 3)


def issues_of(flags, given):
    return pd.DataFrame({"is_label_issue": flags, "given_label": given})


def test_a_class_almost_all_flagged_is_doubtful():
    given = ["a"] * 10 + ["b"] * 10
    with pytest.warns(SprlWarning, match="flagged are 90% of class 'a': check some"):
        warn_of_doubts(issues_of([True] * 9 + [False] * 11, given), {})
    warn_of_doubts(issues_of([True] * 8 + [False] * 12, given), {})


def test_many_doubtful_classes_get_one_warning():
    given = [str(i) for i in range(9)] * 3
    with pytest.warns(SprlWarning, match="more than 80 % of 4 other classes") as heard:
        warn_of_doubts(issues_of([True] * 27, given), {})
    assert len(heard) == 1


@pytest.mark.parametrize(("given", "judged"), [([0, 1, 0], 0), ([0, 1] * 15, 30), ([0] * 59, 59), ([*range(50)] * 3, 0)])
def test_few_rows_are_no_data_to_judge_by(given, judged):
    told = f"^{len(given)} rows, of which {judged} are in classes of more than 3, are too few to learn from or to judge; take all"
    with pytest.warns(SprlWarning, match=told):
        warn_if_few(np.array(given))
    warn_if_few(np.array([*given, *([7] * 60)]))


def test_a_curriculum_that_began_at_its_lower_bound_is_doubtful():
    issues = issues_of([False] * 50, ["a"] * 50)
    with pytest.warns(SprlWarning, match="sure of 3 of 50 labels"):
        warn_of_doubts(issues, {"m": torch.tensor(5), "confident": torch.tensor(3)})
    warn_of_doubts(issues, {"m": torch.tensor(6), "confident": torch.tensor(6)})


@pytest.mark.parametrize("part", [1, 7, 40])
def test_suggestions_do_not_depend_on_the_parts_they_are_made_in(monkeypatch, part):
    torch.manual_seed(0)
    previous, y, wrong = torch.randn(23, 5).softmax(1), torch.randint(5, (23,)), torch.rand(23, dtype=torch.float64)
    before, whole = previous.clone(), suggest(previous, y, wrong)
    monkeypatch.setattr(labels, "PART", part)
    assert all(torch.equal(a, b) for a, b in zip(suggest(previous, y, wrong), whole, strict=True))
    assert torch.equal(previous, before)


def test_pred_probs_are_a_copy():
    recorder = Recorder([0, 1], num_classes=2)
    recorder.memory["previous"][0] = torch.tensor([0.25, 0.5])
    recorder.pred_probs()[:] = 7
    assert recorder.memory["previous"].tolist() == [[0.25, 0.5], [0, 0]]


def test_labels_in_the_place_of_positions_are_noticed():
    p, y = two_heaps()
    recorder = Recorder(y, num_classes=2)
    recorder.update(logits_of(p), torch.tensor(y))
    with pytest.warns(SprlWarning, match="only 2 of 400 samples were ever visited: index must be positions"):
        recorder.label_issues()


def test_places_in_the_batch_are_noticed():
    p, y = two_heaps()
    recorder = Recorder(y, num_classes=2)
    for part in torch.arange(400).split(100):
        recorder.update(logits_of(p)[part], torch.arange(100))
    with pytest.warns(SprlWarning, match="only 100 of 400 samples were ever visited: .* not labels or places in the batch"):
        recorder.label_issues()


def test_a_recorder_refuses_a_batch_of_other_shapes():
    recorder = Recorder([0, 1, 1], num_classes=2)
    for logits, index in ((torch.zeros(1, 3, 2), [0, 1, 2]), (torch.zeros(3, 4), [0, 1, 2]), (torch.zeros(3, 2), [0, 1])):
        with pytest.raises(InputError, match=r"logits \[B, 2\] and an index \[B\]"):
            recorder.update(logits, index)


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ([0, -1], r"positions in y, which lie in 0\.\.2, got -1\.\.0"),
        ([0, 3], r"positions in y, which lie in 0\.\.2, got 0\.\.3"),
        ([0.0, 1.0], "index must be int64, the samples' positions in y, got float32"),
        ([True, False], "got bool"),
        *((torch.tensor([0, 1], dtype=kind), f"got {str(kind)[6:]}") for kind in (torch.uint8, torch.int16, torch.float64)),
    ],
)
def test_what_are_no_positions(index, why):
    recorder = Recorder([0, 1, 1], num_classes=2)
    with pytest.raises(InputError, match=why):
        recorder.update(torch.zeros(2, 2), index)
    assert not recorder.memory["visits"].any()


@pytest.mark.parametrize("index", [[0, 2], np.array([0, 2]), torch.tensor([0, 2], dtype=torch.int32)])
def test_positions_of_any_kind(index):
    recorder = Recorder([0, 1, 1], num_classes=2)
    recorder.update(torch.zeros(2, 2), index)
    assert recorder.memory["visits"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("index", [[], torch.arange(0)])
def test_an_empty_batch_is_no_visit(index):
    p, y = two_heaps()
    first, second = recorded(p, y), recorded(p, y)
    second.update(torch.zeros(0, 2), index)
    assert all(torch.equal(first.memory[name], value) for name, value in second.memory.items())


def test_too_few_names_are_refused():
    with pytest.raises(InputError, match="2 names are too few for 3 classes: give one for each, in their order"):
        recorded([[0.5, 0.3, 0.2]] * 4, [0, 1, 1, 0]).label_issues(classes=["cat", "dog"])


def test_a_recorder_goes_on_from_a_checkpoint(tmp_path):
    p, y = two_heaps()
    first = recorded(p, y, visits=3)
    torch.save(first.state_dict(), tmp_path / "recorder.pt")
    kept = first.state_dict()
    second = Recorder(y, num_classes=2)
    second.load_state_dict(torch.load(tmp_path / "recorder.pt", weights_only=True))
    for recorder in (first, second):
        recorder.update(logits_of(p), torch.arange(400))
    pd.testing.assert_frame_equal(first.label_issues(), second.label_issues())
    assert (second.memory["visits"] == 4).all()
    assert (kept["visits"] == 3).all()  # a copy


def test_a_checkpoint_of_something_else_is_refused():
    recorder = Recorder([0, 1, 1], num_classes=2)
    with pytest.raises(InputError, match=r"'previous' has the shape \(4, 2\), not \(3, 2\): it is of other data"):
        recorder.load_state_dict(Recorder([0, 1, 1, 0], num_classes=2).state_dict())
    with pytest.raises(InputError, match="has no 'previous'"):
        recorder.load_state_dict({"weight": torch.zeros(3)})


def test_a_checkpoint_of_the_same_labels_in_another_order_is_refused():
    p, y = two_heaps()
    first = recorded(p, y)
    state = first.state_dict()
    with pytest.raises(InputError, match="of other labels, or of these in another order: give y as it was when the state was saved"):
        Recorder(y[::-1], num_classes=2).load_state_dict(state)
    del state["labels"]  # as states were before
    second = Recorder(torch.tensor(y), num_classes=2)
    second.load_state_dict(state)
    assert torch.equal(second.memory["support"], first.memory["support"])
