"""Several processes that train one run come to what one process comes to."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sprl.data import digits
from sprl.data.rows import Streamed
from sprl.engine import start
from sprl.methods import SPRL, CoTeaching, MentorNet, Standard
from sprl.noise import corrupt
from sprl.ranks import ALONE, Ranks
from sprl.state import Task
from sprl.stepping import Shared
from sprl.training import train

METHODS = {
    "standard": Standard(),
    "sprl": SPRL(T1=2, gamma_d=10.0),
    "sprl, evaluated": SPRL.as_released(T1=2, gamma_d=10.0),
    "sprl, T1 searched": SPRL(),
    "co-teaching": CoTeaching(noise_rate=0.4),
    "mentornet, drawing": MentorNet(curriculum="pd", first_dropout=0.9, dropout=0.9),
}


def plain(shape, num_classes):
    """Without batch norm, whose statistics would be those of each process's share."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, num_classes))


def trained(method, ranks, streamed=False):
    data = digits.load()
    y = torch.from_numpy(corrupt(data.y, "symmetric:0.4", 10, seed=0))
    x = Streamed(data.x, torch.device("cpu")) if streamed else data.x
    task = Task(x, y, 10, epochs=5, batch_size=100, ranks=ranks)
    state = start(task, method, plain, Shared(ranks) if ranks.count > 1 else None)
    epochs = list(train(task, state))
    weights = torch.cat([p.detach().flatten() for p in state.networks.parameters()])
    return {"losses": torch.tensor([epoch.loss for epoch in epochs]), "weights": weights, "was_chosen": epochs[-1].chosen, **state.memory}


def one_of_many(rank, count, folder, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=count)
    ranks = Ranks(rank, count)
    found = {name: trained(method, ranks) for name, method in METHODS.items()}
    found["streamed"] = trained(METHODS["sprl"], ranks, streamed=True)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("count", [2, 4])
def test_they_equal_one_process_up_to_the_order_of_sums(count, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(one_of_many, (count, str(tmp_path), port), nprocs=count)
    first, *others = [torch.load(tmp_path / f"{rank}.pt") for rank in range(count)]
    for name, method in METHODS.items():
        for part, value in first[name].items():  # among each other to the bit
            assert all(torch.equal(other[name][part].nan_to_num(), value.nan_to_num()) for other in others), (name, part)
        if "drawing" in name:  # from another stream than a single process
            continue
        alone = trained(method, ALONE)
        assert (first[name]["was_chosen"] != alone["was_chosen"]).sum() <= 2  # of 1,347: where two are as likely but for the last bit
        for part in ("losses", "weights", "previous", "support"):
            assert torch.allclose(first[name][part], alone[part], rtol=1e-3, atol=1e-4), (name, part)
    assert all(torch.equal(first["streamed"][part], value) for part, value in first["sprl"].items() if not value.isnan().any())


@given(st.integers(0, 1000), st.integers(1, 17))
def test_shares_are_disjoint_complete_and_even(n, count):
    rows = torch.arange(n)
    parts = [Ranks(rank, count).mine(rows) for rank in range(count)]
    assert torch.equal(torch.cat(parts), rows)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert [rows[Ranks(rank, count).part(n)].tolist() for rank in range(count)] == [part.tolist() for part in parts]
