"""What an audit computes for itself, and how it words a verdict."""

import numpy as np
import pytest

from sprl import reviews
from sprl.audit import Verdict


def test_the_interval_of_a_share_is_wilson_s():
    """Its ends are those shares that lie just 1.645 of their own standard deviations from what was seen."""
    for count, n in ((51, 60), (1, 50), (499, 500)):
        for end in reviews.wilson(count, n):
            assert abs(count / n - end) == pytest.approx(1.645 * np.sqrt(end * (1 - end) / n))
    assert reviews.wilson(0, 50)[0] == pytest.approx(0)
    assert reviews.wilson(50, 50)[1] == pytest.approx(1)


@pytest.mark.parametrize(
    ("clear", "said"), [(True, "1.0 % (90 % interval: 0.0 to 2.0 %)"), (False, "cannot tell (estimates: 0.0 to 2.0 %, none of them sure)")]
)
def test_only_a_clear_verdict_promises_an_interval(clear, said):
    assert reviews.rate(Verdict(np.full(3, 0.01), 0.01, 0.0, 0.02, clear)) == said
