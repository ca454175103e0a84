"""SPRLLoss in a plain loop, and its state."""

import copy
import math

import numpy as np
import pytest
import torch

from sprl.engine import batch_sizes, predict, run_epoch, start
from sprl.errors import InputError, SprlWarning
from sprl.loss import SPRLLoss
from sprl.methods import SPRL
from sprl.schedules import adam_beta1, learning_rate
from sprl.seeds import stream_seed


@pytest.mark.parametrize(
    "fields", [{}, {"limit": "agreement", "gamma_d": 5.0}, {"choice": "all", "growth": "released"}, {"normalised": False}]
)
def test_a_plain_loop_equals_the_engine_bit_for_bit(task, fields):
    state = start(task, SPRL(**{"T1": 3, "normalised": True, **fields}), "mlp")
    network = copy.deepcopy(state.networks[0])
    losses = [run_epoch(task, state).loss for _ in range(task.epochs)]

    loss = SPRLLoss(task.y, 4, task.epochs, T1=3, **fields)
    optimizer = torch.optim.Adam(network.parameters(), lr=task.lr, fused=True)
    order = torch.Generator().manual_seed(stream_seed(task.seed, "batches"))
    for t in range(1, task.epochs + 1):
        optimizer.param_groups[0].update(lr=learning_rate(t, lr=task.lr, T=task.epochs), betas=(adam_beta1(t, T=task.epochs), 0.999))
        total = 0.0
        for index in torch.randperm(len(task.y), generator=order).split(batch_sizes(len(task.y), task.batch_size)):
            optimizer.zero_grad()
            value = loss(network(task.x[index]), index)
            value.backward()
            optimizer.step()
            total += value.item() * len(index)
        loss.end_epoch()
        assert total / len(task.y) == pytest.approx(losses[t - 1], rel=1e-12)
    for ours, theirs in zip(state.networks[0].parameters(), network.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert all(torch.equal(state.memory[name], value) for name, value in loss.memory.items())


def small(**fields):
    return SPRLLoss(torch.arange(40) % 2, 2, epochs=6, **{"T1": 2, **fields})


def walk(loss, epochs, generator):
    for _ in range(epochs):
        for index in torch.arange(40).split(8):
            loss(torch.randn(8, 2, generator=generator), index)
        loss.end_epoch()


def test_state_travels_as_extra_state_and_is_copied(tmp_path):
    first, generator = small(), torch.Generator().manual_seed(0)
    walk(first, 4, generator)
    torch.save(first.state_dict(), tmp_path / "loss.pt")
    second = small()
    second.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    assert not list(first.buffers())  # DistributedDataParallel broadcasts buffers
    logits, index = torch.randn(8, 2, generator=generator), torch.arange(8)
    assert torch.equal(first(logits, index), second(logits, index))
    kept = first.state_dict()
    first(logits, index)
    assert (second.memory["visits"][:8] == 5).all()
    assert (kept["_extra_state"]["memory"]["visits"][:8] == 5).all()


def test_state_of_other_data_or_epochs_is_refused():
    state = small().state_dict()
    with pytest.raises(InputError, match="6 epochs, this loss of 7"):
        SPRLLoss(torch.arange(40) % 2, 2, epochs=7, T1=2).load_state_dict(state)
    with pytest.raises(InputError, match="shape"):
        SPRLLoss(torch.arange(41) % 2, 2, epochs=6, T1=2).load_state_dict(state)


def test_state_of_other_labels_or_settings_is_refused():
    first = small(gamma_d=5)
    walk(first, 3, torch.Generator().manual_seed(0))
    state = first.state_dict()
    with pytest.raises(InputError, match="of other labels, or of these in another order: give y as it was"):
        SPRLLoss((torch.arange(40) + 1) % 2, 2, epochs=6, T1=2, gamma_d=5).load_state_dict(state)
    for fields, why in (({"gamma_d": 6}, "gamma_d=5.0, this loss of gamma_d=6.0"), ({"gamma_d": 5, "T1": 3}, "T1=2, this loss of T1=3")):
        with pytest.raises(InputError, match=f"the saved state is of {why}"):
            small(**fields).load_state_dict(state)
    del state["_extra_state"]["memory"]["labels"], state["_extra_state"]["fields"]  # as states were before
    old = small(gamma_d=5)
    old.load_state_dict(state)
    assert torch.equal(old.memory["visits"], first.memory["visits"])


def test_evaluation_mode_changes_nothing_and_outlives_the_last_epoch():
    loss = small()
    walk(loss, 6, torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in loss.memory.items()}
    loss.eval()
    assert loss(torch.zeros(8, 2), torch.arange(8)).isfinite()
    for name, value in loss.memory.items():
        torch.testing.assert_close(before[name], value, rtol=0, atol=0, equal_nan=True)
    loss.train()
    with pytest.raises(InputError, match="all 6 epochs are over"):
        loss(torch.zeros(8, 2), torch.arange(8))


def test_previous_epoch_is_the_previous_visit():
    loss = small(gamma_d=1.0)
    walk(loss, 2, torch.Generator().manual_seed(0))
    index = torch.tensor([3, 3, 5])  # a weighted sampler draws some twice and leaves others out
    loss(torch.tensor([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0]]), index)
    assert loss.memory["visits"][[3, 5, 7]].tolist() == [4, 3, 2]
    torch.testing.assert_close(loss.memory["previous"][5], torch.tensor([1.0, 0.0]).softmax(0))


def test_the_normalised_form_is_the_default_and_the_papers_divided_by_one_plus_gamma():
    ours, paper = small(gamma_d=5.0), small(gamma_d=5.0, normalised=False)
    for loss in (ours, paper):
        walk(loss, 4, torch.Generator().manual_seed(0))
    gamma = ours.memory["gamma"]
    assert gamma > 1
    logits, index = torch.randn(8, 2, generator=torch.Generator().manual_seed(1)), torch.arange(8)
    torch.testing.assert_close(ours(logits, index), paper(logits, index) / (1 + gamma))


def test_sgd_does_not_diverge():
    """The same loop under Eq. 10 ends no better than a guess."""
    torch.manual_seed(0)
    centres = 2 * torch.randn(10, 20)
    clean = torch.arange(500) % 10
    x, y = centres[clean] + torch.randn(500, 20), clean.clone()
    y[::3] = torch.randint(10, y[::3].shape)

    def accuracy(**fields):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        loss = SPRLLoss(y, 10, epochs=30, **fields)
        for _ in range(30):
            for index in torch.randperm(500).split(32):
                optimizer.zero_grad()
                loss(network(x[index]), index).backward()
                optimizer.step()
            loss.end_epoch()
        return (network(x).argmax(1) == clean).float().mean().item()

    assert accuracy() > 0.9
    assert accuracy(normalised=False) < 0.5


EPOCHS = 20


def warming(n=400, **fields):
    return SPRLLoss(torch.arange(n) % 4, 4, EPOCHS, **fields)


def epoch(loss, sureness, index=None):
    """One in which each sample is predicted as its label, the surer the larger the number."""
    logits = sureness * torch.nn.functional.one_hot(loss.y, 4).float()
    for part in (torch.arange(len(loss.y)) if index is None else index).split(50):
        loss(logits[part], part)
    loss.end_epoch()


def equal(memory, other):
    for name, value in memory.items():
        torch.testing.assert_close(other[name], value, rtol=0, atol=0, equal_nan=True)


def test_a_tenth_of_each_class_has_no_part_in_the_warmup():
    loss = warming()
    held = ~loss.memory["chosen"]
    assert torch.bincount(loss.y[held]).tolist() == [10] * 4
    logits = torch.randn(400, 4, requires_grad=True)
    loss(logits, torch.arange(400)).backward()
    assert torch.equal(logits.grad.abs().sum(1) == 0, held)
    assert loss.memory["visits"].all()  # but it is seen


def test_the_warmup_ends_when_what_is_held_out_is_predicted_worse_and_then_all_take_part():
    loss = warming()
    for sureness in (0.5, 1.0, 1.5):
        epoch(loss, sureness)
        assert loss.method.T1 == "auto"
    epoch(loss, 1.4)
    assert loss.method.T1 == 4
    assert loss.memory["chosen"].all()
    given = warming(T1=4)
    for sureness in (0.5, 1.0, 1.5, 1.4):
        epoch(given, sureness)
    for sureness in (1.5, 1.0, 0.5, 0.1):
        for one in (loss, given):
            epoch(one, sureness)
    assert loss.method == given.method  # T1 stays, and all is as if it had been given
    equal(loss.memory, given.memory)


def test_a_loop_that_learns_on_warms_up_for_half_of_its_epochs():
    loss = warming()
    for t in range(EPOCHS):
        epoch(loss, 0.1 * t)
    assert loss.method.T1 == EPOCHS // 2


def test_samples_that_are_left_out_are_guesses():
    loss = warming()
    held = (~loss.memory["chosen"]).nonzero().squeeze(1)
    epoch(loss, 1.0, index=loss.memory["chosen"].nonzero().squeeze(1))
    assert loss.held_out == pytest.approx([math.log(4)])
    epoch(loss, 1.0, index=held.repeat(2))  # a weighted sampler draws some twice
    assert loss.held_out[1] == pytest.approx(math.log(math.e + 3) - 1)


@pytest.mark.parametrize("stopped", [2, 4, 9])  # while warming up, at its end, after it
def test_a_resumed_warmup_is_the_unbroken_one(tmp_path, stopped):
    sureness = [0.5, 1.0, 1.5, 1.4, 1.3, 1.5, 1.6, 0.5, 1.0, 1.1, 1.2]
    unbroken, first, second = warming(), warming(), warming()
    for number in sureness:
        epoch(unbroken, number)
    for number in sureness[:stopped]:
        epoch(first, number)
    torch.save(first.state_dict(), tmp_path / "loss.pt")
    second.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    for number in sureness[stopped:]:
        epoch(second, number)
    assert (second.method, second.held_out, second.clock) == (unbroken.method, unbroken.held_out, unbroken.clock)
    assert second.method.T1 == 4
    equal(second.memory, unbroken.memory)


def test_a_refused_end_of_the_warmup_can_be_tried_again():
    loss = warming(predictions="evaluated")
    loss(torch.zeros(400, 4), torch.arange(400))
    for _ in range(2):
        with pytest.raises(InputError, match="needs end_epoch"):
            loss.end_epoch()
    loss.end_epoch(lambda: torch.full((400, 4), 0.25))
    assert len(loss.held_out) == 1


def test_t1_is_a_tenth_where_there_is_little_to_hold_out_and_a_number_if_given():
    assert SPRLLoss([0, 1] * 5, 2, epochs=50).method.T1 == 5
    assert SPRLLoss([0, 1] * 5, 2, epochs=50).memory["chosen"].all()
    assert SPRLLoss([0, 1] * 5, 2, epochs=1).method.T1 == 1
    assert SPRLLoss([0, 1] * 200, 2, epochs=1).memory["chosen"].all()  # no epoch would follow in which the rest could take part
    assert warming(n=199).method.T1 == 2
    assert warming(T1=7).method.T1 == 7
    assert warming(T1=7).memory["chosen"].all()
    with pytest.raises(InputError, match="did you mean 'gamma_d'"):
        SPRLLoss([0, 1] * 5, 2, epochs=50, gama_d=3)


def test_states_of_an_older_version_are_refused_with_what_to_do():
    old = warming(T1=2, normalised=False)
    epoch(old, 1.0)
    state = old.state_dict()
    del state["_extra_state"]["T1"], state["_extra_state"]["held_out"]  # as states were before
    why = r"is of T1=2, normalised=False, this loss of T1='auto', normalised=True: make SPRLLoss\(..., T1=2, normalised=False\) to resume"
    with pytest.raises(InputError, match=why):
        warming().load_state_dict(state)
    same = warming(T1=2, normalised=False)
    same.load_state_dict(state)
    epoch(same, 1.0)
    assert same.clock.t == 3
    del state["_extra_state"]["fields"]  # still older
    with pytest.raises(InputError, match=r"of an older version, .* with \(by default T1=2, normalised=False\) to resume"):
        warming().load_state_dict(state)


def test_an_evaluation_pass_must_be_given_where_it_is_asked_for(task):
    loss = SPRLLoss(task.y, 4, task.epochs, T1=2, predictions="evaluated")
    loss(torch.zeros(len(task.y), 4), torch.arange(len(task.y)))
    with pytest.raises(InputError, match="needs end_epoch"):
        loss.end_epoch()
    state = start(task, SPRL(T1=2), "mlp")
    loss.end_epoch(lambda: predict(state.networks, task.x))
    assert loss.clock.t == 2  # what was refused did not count


def test_probabilities_may_be_coarse_or_an_array():
    torch.manual_seed(0)
    logits = torch.randn(40, 500) * 4
    for p in (logits.softmax(1), logits.bfloat16().softmax(1), logits.half().softmax(1), logits.softmax(1).numpy()):
        loss = SPRLLoss(torch.arange(40) % 4, 500, epochs=60, T1=1, predictions="evaluated", limit="none")
        loss(logits, torch.arange(40))
        for _ in range(2):
            loss.end_epoch(lambda p=p: p)
        assert 0 < loss.memory["chosen"].sum() < 40


@pytest.mark.parametrize(
    ("p", "why"),
    [
        (torch.tensor([[4.0, -3.0]] * 40), r", none negative and their sum 1; got numbers in -3\.\.4: if .* apply softmax\(1\)"),
        (torch.tensor([[4.0, 3.0]] * 40), r", .*; got numbers in 3\.\.4: if they are logits"),
        (torch.tensor([[1.5, -0.5]] * 40), r", .*; got numbers in -0\.5\.\.1\.5"),
        (torch.full((40, 2), math.nan), r", .*; got numbers in nan\.\.nan"),
        (torch.full((39, 2), 0.5), r"; got the shape \(39, 2\)"),
        (np.full((40, 3), 1 / 3), r"; got the shape \(40, 3\)"),
        ([[0.5, 0.5]] * 40, ", as a tensor; got a list"),
        (None, ", as a tensor; got a NoneType"),
    ],
)
def test_what_are_no_probabilities(p, why):
    loss = small(predictions="evaluated")
    loss(torch.zeros(40, 2), torch.arange(40))
    with pytest.raises(InputError, match=r"predict must return probabilities \[40, 2\], a row for each sample in the order of y" + why):
        loss.end_epoch(lambda: p)
    assert loss.clock.t == 1


def test_label_issues_name_the_wrong_labels(task):
    clean = torch.arange(len(task.y)) % 4
    loss = SPRLLoss(task.y, 4, task.epochs)
    for _ in range(task.epochs):
        loss(5 * torch.nn.functional.one_hot(clean, 4).float(), torch.arange(len(clean)))
        loss.end_epoch()
    issues = loss.label_issues(classes=list("abcd"))
    assert issues["is_label_issue"].tolist() == (task.y != clean).tolist()
    assert issues["predicted_label"].tolist() == ["abcd"[c] for c in clean]


def test_labels_in_the_place_of_positions_are_noticed():
    loss = small()
    for index in torch.arange(40).split(8):
        loss(torch.zeros(8, 2), loss.y[index])
    with pytest.warns(SprlWarning, match="only 2 of 40 samples were ever visited: index must be positions in y, not labels"):
        loss.end_epoch()
    loss.end_epoch()  # told once


def test_a_logit_that_is_not_finite_shows_in_the_loss_even_of_a_sample_left_out():
    loss = small(T1=1)
    y = loss.y.clone()
    logits = torch.nn.functional.one_hot(y, 2) * 4.0
    logits[0] = -logits[0]  # the least likely label: not chosen
    for _ in range(2):
        loss(logits, torch.arange(40))
        loss.end_epoch()
    assert not loss.memory["chosen"][0]
    assert loss(logits, torch.arange(40)).isfinite()
    logits[0, 0] = torch.inf
    assert loss(logits, torch.arange(40)).isnan()


def test_an_end_of_epoch_that_never_comes_is_noticed():
    loss = small()
    loss(torch.zeros(40, 2), torch.arange(40))
    with pytest.warns(SprlWarning, match="end_epoch was never called: call it after each of the 6 epochs"):
        loss.label_issues()
    loss.end_epoch()
    one_epoch = SPRLLoss([0, 1] * 5, 2, epochs=1, T1=1)  # nothing to choose between one epoch and the next
    for ended in (loss, one_epoch):
        with pytest.warns(SprlWarning, match="do not stand apart"):  # a network that knows nothing
            ended.label_issues()


@pytest.mark.parametrize(
    ("logits", "index", "got"),
    [
        ((8, 2), torch.arange(7), r"logits \(8, 2\) and an index \(7,\)"),
        ((8, 3), torch.arange(8), r"logits \(8, 3\) and an index \(8,\)"),
        ((8,), torch.arange(8), r"logits \(8,\) and an index \(8,\)"),
        ((8, 1, 2), torch.arange(8)[:, None], r"logits \(8, 1, 2\) and an index \(8, 1\)"),
        ((1, 2), 3, r"logits \(1, 2\) and an index \(\)"),
    ],
)
def test_a_batch_of_other_shapes_is_refused(logits, index, got):
    loss = small()
    with pytest.raises(InputError, match=rf"a batch is logits \[B, 2\] and an index \[B\], the samples' positions in y; got {got}"):
        loss(torch.zeros(logits), index)
    assert not loss.memory["visits"].any()


@pytest.mark.parametrize("index", [torch.arange(0), []])
@pytest.mark.parametrize("epochs", [0, 4])
def test_an_empty_batch_is_no_visit_and_its_loss_is_zero(index, epochs):
    loss = small()
    walk(loss, epochs, torch.Generator().manual_seed(0))
    before = copy.deepcopy(loss.memory)
    x = torch.zeros(0, 3)
    network = torch.nn.Linear(3, 2)
    value = loss(network(x), index)
    value.backward()
    assert value.item() == 0
    assert not network.weight.grad.any()
    for name, old in before.items():
        torch.testing.assert_close(loss.memory[name], old, rtol=0, atol=0, equal_nan=True)


def test_the_outputs_of_a_network_are_no_logits():
    with pytest.raises(InputError, match=r"logits must be a tensor \[B, 2\], got a tuple: give the logits in it alone"):
        small()((torch.zeros(8, 2),), torch.arange(8))


def test_the_loss_can_be_compiled_whole():
    loss = small()
    torch.compile(loss, fullgraph=True, backend="eager")(torch.zeros(8, 2), torch.arange(8))
    assert loss.memory["visits"].sum() == 8
