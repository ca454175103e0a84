"""What changes with the epoch: pure functions of t, counted from 1 to T. Integers where the paper has counts."""

import math


def curriculum_size(t: int, *, n: int, m: int, T: int, T1: int, K: int = 10) -> int:
    r"""delta(t), Eq. 6: how many samples the curriculum holds.

    $$\delta(t) = n \text{ for } t \le T_1, \qquad
      \min\Big(m + \Big\lfloor \frac{t - T_1}{\lfloor (T - T_1) / (K - mK/n + 1) \rfloor} \Big\rfloor
      \lfloor n / K \rfloor,\ n\Big) \text{ after}$$

    The inner floor is at least 1, so that short schedules work, and so is floor(n / K), for fewer than K samples.
    """
    if t <= T1:
        return n
    every = max(1, (T - T1) * n // (K * n - m * K + n))
    return min(m + (t - T1) // every * max(1, n // K), n)


def curriculum_size_released(t: int, *, n: int, tenths: int, T: int, T1: int) -> int:
    """delta(t) of the authors' released code: from `tenths` of ten in steps of a tenth, counted from epoch T1 + 1, all in about 0.15 T
    epochs before the end."""
    if t <= T1:
        return n
    every = max(1, (T - 3 * T // 20 - T1) // (10 - tenths))
    return n * min(tenths + (t - 1 - T1) // every, 10) // 10


def resistance_ramp(mu: float) -> float:
    r"""The ramp of Eq. 11, $e^{-5 (1 - \mu)^2}$, for mu in [0, 1]."""
    return math.exp(-5.0 * (1.0 - mu) ** 2)


def resistance_weight(t: int, *, gamma_max: float, T: int, T1: int) -> float:
    r"""gamma(t), Eq. 11: 0 through T1, then $\gamma_{max} e^{-5 (1 - \mu)^2}$ with mu = (t - T1)/(T - T1), so gamma(T) = gamma_max."""
    return 0.0 if t <= T1 else gamma_max * resistance_ramp((t - T1) / (T - T1))


def largest_resistance(gamma_d: float, *, m: int, n: int) -> float:
    r"""gamma_max $= \gamma_d (10 - \lceil m / 0.1n \rceil)$, the ceiling computed in integers."""
    return gamma_d * (10 + (-10 * m) // n)


def start_size(confident: int, n: int) -> int:
    """m: the largest count of p[given label] >= 0.5 during warm-up, clamped to [n//10, n//2], and at least 1."""
    return max(1, n // 10, min(confident, n // 2))


def start_size_known(noise_rate: float, n: int) -> int:
    """m when the noise rate e is known: 0.65 (1 - e) n, the middle of the paper's 0.5 to 0.8, clamped as above."""
    return start_size(round(0.65 * (1.0 - noise_rate) * n), n)


def start_tenths(confident: int, n: int, counted: int) -> int:
    """m of the released code: the whole tenths of the `counted` samples that are confident, plus one, at most five. `confident`: their
    number scaled to n and rounded down, which is undone here."""
    return min(10 * -(-confident * counted // n) // counted + 1, 5)


def published(t: int, *, start: int, gamma_d: float, n: int, T: int, T1: int, K: int) -> tuple[int, float]:
    """delta(t - 1) and gamma(t) of an epoch t > T1, as in the paper. `start`: the count that m is clamped from."""
    m = start_size(start, n)
    gamma_max = largest_resistance(gamma_d, m=m, n=n)
    return curriculum_size(t - 1, n=n, m=m, T=T, T1=T1, K=K), resistance_weight(t, gamma_max=gamma_max, T=T, T1=T1)


def released(t: int, *, tenths: int, gamma_d: float, n: int, T: int, T1: int) -> tuple[int, float]:
    """The same as in the released code, with m in tenths: mu one epoch late; no resistance in epoch T1 + 1."""
    gamma = gamma_d * (10 - tenths) * resistance_ramp((t - 1 - T1) / (T - T1)) if t > T1 + 1 else 0.0
    return curriculum_size_released(t - 1, n=n, tenths=tenths, T=T, T1=T1), gamma


SCHEDULES = ("published", "released")  # of the learning rate and beta1: the latter takes those of the epoch before


def decay_start(T: int) -> int:
    """D = floor(0.4 T): the learning rate is constant through epoch D (80 of 200 in the paper)."""
    return 2 * T // 5


def learning_rate(t: int, *, lr: float, T: int) -> float:
    """Constant through D, then lr (T - t + 1)/(T - D): linear towards 0."""
    D = decay_start(T)
    return lr if t <= D else lr * (T - t + 1) / (T - D)


def adam_beta1(t: int, *, T: int) -> float:
    """0.9 through epoch D, 0.1 after."""
    return 0.9 if t <= decay_start(T) else 0.1


def forget_rate(t: int, *, tau: float, T_k: int, c: float = 1.0) -> float:
    r"""1 - R(t) of Co-teaching: the share of a batch that is dropped, $\tau \min((t - 1)^c / T_k, 1)$; tau at once where T_k is 0.

    The paper sets R after each epoch, beginning with R = 1, hence t - 1: the first epoch drops nothing.
    """
    return tau * min((t - 1) ** c / T_k, 1.0) if T_k else tau


def self_paced_share(t: int, *, start: float, end: float, T: int, warmup: int) -> float:
    """q(t) of self-paced learning: all through the warm-up, then from `start` in equal steps to `end` in epoch T."""
    return 1.0 if t <= warmup else start + (end - start) * (t - warmup - 1) / max(T - warmup - 1, 1)
