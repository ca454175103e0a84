"""Several processes that train one run.

Each process, or rank, passes its share of a batch through the networks; the logits are then shared, and every rank computes the loss, the
choice and the records of the whole batch as a single process would, whatever the method. Gradients flow into a rank's own logits; summed
over ranks by DistributedDataParallel they are those of the whole batch. What is shared of a batch, rows x classes numbers, is little beside
the gradients.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sprl.networks import logits_of


@dataclass(frozen=True)
class Ranks:
    """All ranks as one of them sees them. Of a single one, everything is its own and nothing is sent."""

    rank: int = 0
    count: int = 1
    sync_norm: bool = False  # batch norm over the whole batch, not over each rank's share
    link: Any = field(default=None, repr=False)  # torchrun.Link

    def part(self, n: int) -> slice:
        """Of n rows those of this rank: shares differ by one row at most, and none is in two."""
        size, more = divmod(n, self.count)
        first = self.rank * size + min(self.rank, more)
        return slice(first, first + size + (self.rank < more))

    def mine(self, rows: Tensor) -> Tensor:
        return rows[self.part(len(rows))] if self.count > 1 else rows

    def whole(self, logits: Tensor, n: int) -> Tensor:
        """The logits [M, n, C] of all ranks from this one's [M, b, C], through which alone gradients flow."""
        if self.count == 1:
            return logits
        own = self.part(n)
        shared = logits.new_zeros(logits.shape[0], n, logits.shape[2])
        shared[:, own] = logits.detach()
        dist.all_reduce(shared)  # each row is one rank's, so nothing is rounded
        if logits.requires_grad:
            logits.register_hook(lambda gradient: gradient * self.count)  # of whose mean over ranks DistributedDataParallel makes the sum
        return torch.cat([shared[:, : own.start], logits, shared[:, own.stop :]], 1)

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Those of the first rank for all: running statistics, as before every step; what other machines may round otherwise."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def most(self, *values: int) -> list[int]:
        """The largest of all ranks' values, one by one."""
        found = torch.tensor(values)
        if self.count > 1:
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return found.tolist()

    def gathered(self, tensors: list[Tensor]) -> list[list[Tensor]]:
        """The tensors of every rank, which are alike in number and shape, in the host's memory."""
        if self.count == 1:
            return [tensors]
        found: list[list[Tensor]] = [[] for _ in range(self.count)]
        for tensor in tensors:
            parts = [torch.empty_like(tensor) for _ in range(self.count)]
            dist.all_gather(parts, tensor)
            for place, part in zip(found, parts, strict=True):
                place.append(part)
        return found

    def prepared(self, networks: nn.ModuleList) -> nn.ModuleList:
        converted: nn.ModuleList = nn.SyncBatchNorm.convert_sync_batchnorm(networks) if self.sync_norm else networks
        return converted


ALONE = Ranks()


class All(nn.Module):
    """The networks as one module: [b, ...] -> logits [M, b, C]."""

    def __init__(self, networks: nn.ModuleList) -> None:
        super().__init__()
        self.networks = networks

    def forward(self, x: Tensor) -> Tensor:
        return logits_of(self.networks, x)


def in_parallel(networks: nn.ModuleList) -> DistributedDataParallel:
    """The networks with gradients averaged over ranks, while they are computed."""
    return DistributedDataParallel(All(networks))
