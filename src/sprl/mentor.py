"""MentorNet's weights of samples (Jiang et al. 2018): the predefined curricula in closed form, and the small network that learns them.

`loss` and `diff` = loss - lambda_1 are a sample's, `percent` is how much of the student's training is done, from 0 to 99.
"""

from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Curriculum = Literal["self-paced", "pd"]
Mentor = dict[str, Tensor]

BURN_IN, SOFT_FROM = 18, 90  # percent: "pd" weighs all alike through the first, and softly from the second on
LOSSES = torch.cat([torch.arange(100) / 10, torch.arange(10.0, 30.0)])  # the grid that the network learns from
DIFFS = torch.arange(-50, 50) / 10
EDGES = (0.0, 29.0), (-5.0, 4.9)
DRAWN = 80_000  # points of the grid: of 100,000 the reference keeps a fifth to judge by
BATCH, CLIP, DECAY, EVERY = 32, 5.0, 0.9, 1000  # the rate falls to DECAY of itself after EVERY steps


def optimal(curriculum: Curriculum, diff: Tensor, percent: Tensor, gamma: float) -> Tensor:
    r"""$v^*$ of samples (Eq. 5-7), in [0, 1]: 1[diff <= 0]; "pd" begins with 1 for all and ends with $1 - diff / \gamma$, cut off."""
    hard = (diff <= 0).to(diff.dtype)
    if curriculum == "self-paced":
        return hard
    soft = (1 - diff / gamma).clamp(0, 1)
    return torch.where(percent <= BURN_IN, torch.ones_like(hard), torch.where(percent < SOFT_FROM, hard, soft))


def score(mentor: Mentor, loss: Tensor, diff: Tensor, percent: Tensor) -> Tensor:
    """The logit of v from loss [B], diff [B] and percent, whole, [B] or 0-d. -> [B]

    A bidirectional LSTM of one unit a direction, over one step: its state is sigmoid(a x) tanh(b x). Beside it an embedding of the label,
    of which there is but one, and of the percentage; then a layer of 20 and one of 1. What lies off the grid is moved to its edge.
    """
    x = torch.stack([value.clamp(*edge) for value, edge in zip((loss, diff), EDGES, strict=True)], dim=-1)
    gate, cell = F.linear(x, mentor["lstm"], mentor["lstm_bias"]).chunk(2, dim=-1)
    when = mentor["percent"].index_select(0, percent.reshape(-1)).expand(len(x), -1)
    features = torch.cat([mentor["label"].expand(len(x), -1), when, gate.sigmoid() * cell.tanh()], dim=-1)
    hidden = F.linear(features, mentor["hidden"], mentor["hidden_bias"]).tanh()
    return F.linear(hidden, mentor["out"], mentor["out_bias"]).squeeze(-1)


def new_mentor(draw: torch.Generator) -> Mentor:
    """Weights before training."""

    def glorot(rows: int, columns: int) -> Tensor:
        return (2 * torch.rand(rows, columns, generator=draw) - 1) * (6 / (rows + columns)) ** 0.5

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    forward, backward = (glorot(4, 3)[:2, :2] for _ in range(2))  # of gates, without those that meet the state before, zero
    return {
        "lstm": torch.stack([forward, backward], dim=1).reshape(4, 2),
        "lstm_bias": torch.zeros(4),
        "label": glorot(2, 2)[:1],
        "percent": glorot(100, 5),
        "hidden": normal(20, 9),
        "hidden_bias": normal(20),
        "out": normal(1, 20),
        "out_bias": normal(1),
    }


def draw_points(count: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Different points of the grid of losses, differences and percentages, three times [count]."""
    number = torch.randperm(len(LOSSES) * len(DIFFS) * 100, generator=draw)[:count]
    return LOSSES[number // 100 // len(DIFFS)], DIFFS[number // 100 % len(DIFFS)], number % 100


@cache
@torch.enable_grad()
def learn(curriculum: Curriculum, gamma: float, steps: int, lr: float, seed: int = 0) -> Mentor:
    """The network trained, once a process, to give the curriculum's v*. Copy what is to be changed.

    No sample is involved. The published 30,000 steps take about 20 s on a CPU core.
    """
    draw = torch.Generator().manual_seed(seed)
    mentor = new_mentor(draw)
    loss, diff, percent = draw_points(DRAWN, draw)
    v = optimal(curriculum, diff, percent, gamma)
    objective = F.binary_cross_entropy_with_logits if ((v == 0) | (v == 1)).all() else squared_error
    trained = [weight.requires_grad_() for name, weight in mentor.items() if name != "percent"]
    optimizer = torch.optim.Adam(trained, lr=lr, fused=True)
    for step in range(steps):
        at = step * BATCH % DRAWN
        if at == 0:
            order = torch.randperm(DRAWN, generator=draw)
        optimizer.param_groups[0]["lr"] = lr * DECAY ** (step // EVERY)
        rows = order[at : at + BATCH]
        optimizer.zero_grad()
        objective(score(mentor, loss[rows], diff[rows], percent[rows]), v[rows]).backward()
        torch.nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
    return {name: weight.detach() for name, weight in mentor.items()}


def squared_error(logits: Tensor, v: Tensor) -> Tensor:
    return F.mse_loss(logits.sigmoid(), v)
