"""When a loop's warm-up ends, on made-up curves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprl.curriculum import warmed_up

quick = settings(deadline=None, max_examples=200)
curves = st.lists(st.floats(1e-6, 14), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("losses", "T", "end"),
    [
        ([1.84, 2.06, 2.07], 60, 2),  # memorises at once
        ([1.71, 1.73, 1.78, 1.79], 60, 3),  # two slight rises, 0.09 in sum
        ([2.2, 2.07, 2.1, 2.0, 1.9, 1.9, 1.9, 2.0], 60, 8),  # a chance low that the next epoch comes back to, then a plateau
        ([2.3 - 0.01 * t for t in range(60)], 60, 30),  # learns to the end
        ([1.5] * 60, 60, 30),  # nothing to learn, nothing memorised
        ([0.0], 60, 1),  # all is known
        ([2.0, 1.0], 3, 1),
        ([2.0], 1, 1),
    ],
)
def test_where_a_warmup_ends(losses, T, end):
    assert next(t for t in range(1, len(losses) + 1) if warmed_up(losses[:t], T)) == end


@quick
@given(curves, st.integers(-8, 8))
def test_the_scale_of_the_losses_does_not_matter(losses, power):
    assert warmed_up(losses, 100) == warmed_up([loss * 2.0**power for loss in losses], 100)


@quick
@given(curves)
def test_a_new_least_goes_on_and_what_is_no_less_does_not_undo_an_end(losses):
    assert not warmed_up([*losses, min(losses) / 2], 100)
    if warmed_up(losses, 100):
        assert warmed_up([*losses, min(losses)], 100)


@quick
@given(curves, st.integers(1, 100))
def test_half_of_the_epochs_is_the_longest(losses, T):
    assert warmed_up(losses, T) or len(losses) < T // 2
