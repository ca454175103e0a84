"""What is recorded of each sample, and the verdict on its label."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.core import Batch
from sprl.errors import InputError, SprlWarning
from sprl.labels import Recorder, as_labels, is_label_issue, label_quality, new_record, predicted_label, record, warn_of_doubts


def logits_of(p):
    return torch.tensor(p).log()


def recorded(p, y):
    """A recorder that saw every sample once, with these probabilities."""
    recorder = Recorder(y, num_classes=len(p[0]))
    recorder.update(logits_of(p), torch.arange(len(y)))
    return recorder


def test_each_visit_counts_in_the_mean_and_the_last_is_kept():
    y = torch.tensor([0, 1, 1])
    memory = new_record(torch.zeros(3, 2))
    visits = [(0, [0.9, 0.1]), (1, [0.2, 0.8]), (0, [0.3, 0.7]), (0, [0.6, 0.4]), (1, [0.5, 0.5])]
    for i, p in visits:
        record(memory, logits_of([[p]]), Batch(torch.tensor([i]), y[[i]]))
    assert memory["visits"].tolist() == [3, 2, 0]
    torch.testing.assert_close(memory["previous"], torch.tensor([[0.6, 0.4], [0.5, 0.5], [0.0, 0.0]]))
    torch.testing.assert_close(label_quality(memory), torch.tensor([(0.9 + 0.3 + 0.6) / 3, (0.8 + 0.5) / 2, 1.0]))


def test_a_sample_twice_in_one_batch_is_two_visits():
    memory = new_record(torch.zeros(1, 2))
    record(memory, logits_of([[[0.9, 0.1], [0.3, 0.7]]]), Batch(torch.tensor([0, 0]), torch.tensor([0, 0])))
    assert memory["visits"].tolist() == [2]
    assert label_quality(memory).item() == pytest.approx(0.6)


def test_two_networks_are_recorded_by_their_mean_probability():
    memory = new_record(torch.zeros(1, 2))
    record(memory, logits_of([[[0.9, 0.1]], [[0.5, 0.5]]]), Batch(torch.tensor([0]), torch.tensor([0])))
    torch.testing.assert_close(memory["previous"], torch.tensor([[0.7, 0.3]]))


def test_recording_carries_no_gradient():
    memory = new_record(torch.zeros(1, 2))
    record(memory, torch.zeros(1, 1, 2, requires_grad=True), Batch(torch.tensor([0]), torch.tensor([0])))
    assert not any(value.requires_grad for value in memory.values())


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-200, 200), st.floats(-200, 200)), min_size=1, max_size=30))
@settings(deadline=None, max_examples=50)
def test_quality_is_a_probability_whatever_the_logits(visits):
    recorder = Recorder([0, 1, 0, 1, 0], num_classes=2)
    for i, a, b in visits:
        recorder.update(torch.tensor([[a, b]]), torch.tensor([i]))
    quality = recorder.label_issues()["label_quality"]
    assert quality.between(0, 1).all()


def test_rounding_takes_no_quality_beyond_one():
    assert label_quality({"likely": torch.tensor([3.0000002]), "visits": torch.tensor([3.0])}).item() == 1


def test_predicted_label_by_a_slow_loop():
    torch.manual_seed(0)
    p, y = torch.randn(60, 4).mul(2).softmax(1), torch.randint(3, (60,))  # nobody is given class 3
    scale = [max(p[y == k, k].mean().item(), 0.25) for k in range(3)] + [1.0]
    slow = [max(range(4), key=lambda k: row[k] / scale[k] ** 0.5) for row in p.tolist()]
    predicted = predicted_label(new_record(torch.zeros(60, 4)) | {"previous": p, "visits": torch.ones(60)}, y)
    assert predicted.tolist() == slow
    assert not torch.equal(predicted, p.argmax(1))  # else the correction was not tested


@pytest.mark.parametrize(("size", "flagged"), [(3, False), (4, True)])
def test_classes_of_three_samples_are_never_flagged(size, flagged):
    y = [0] * 8 + [1] * size
    recorder = recorded([[0.99, 0.01]] * len(y), y)  # class 1 is never predicted
    issues = is_label_issue(recorder.memory, recorder.y)
    assert issues.tolist() == [False] * 8 + [flagged] * size


def test_samples_never_visited_are_not_flagged():
    recorder = Recorder([1] * 5, num_classes=2)
    recorder.update(logits_of([[0.9, 0.1]] * 4), torch.arange(4))
    issues = recorder.label_issues()
    assert issues["is_label_issue"].tolist() == [True] * 4 + [False]
    assert issues["label_quality"].idxmax() == 4
    assert issues["predicted_label"].tolist() == [0] * 4 + [1]


def test_label_issues_by_hand():
    p = [[0.9, 0.1]] * 3 + [[0.2, 0.8]] + [[0.1, 0.9]] * 4
    frame = recorded(p, [0, 0, 0, 0, 1, 1, 1, 1]).label_issues(classes=["cat", "dog"])
    assert list(frame) == ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert frame["is_label_issue"].tolist() == [False] * 3 + [True] + [False] * 4
    assert frame["label_quality"].tolist() == pytest.approx([0.9] * 3 + [0.2] + [0.9] * 4)
    assert frame["given_label"].tolist() == ["cat"] * 4 + ["dog"] * 4
    assert frame["predicted_label"].tolist() == ["cat"] * 3 + ["dog"] * 5


def test_without_names_the_classes_are_numbers():
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


def test_a_curriculum_that_began_at_its_lower_bound_is_doubtful():
    issues = issues_of([False] * 50, ["a"] * 50)
    with pytest.warns(SprlWarning, match="sure of 3 of 50 labels"):
        warn_of_doubts(issues, {"m": torch.tensor(5), "confident": torch.tensor(3)})
    warn_of_doubts(issues, {"m": torch.tensor(6), "confident": torch.tensor(6)})
