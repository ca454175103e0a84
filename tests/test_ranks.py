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


class Unlike(SPRL):
    """On machines that round otherwise."""

    def refresh(self, memory, y, clock, predict):
        off = dist.get_rank() if dist.is_initialized() else 0
        found = super().refresh(memory, y, clock, predict)
        return {name: value ^ bool(off) if value.dtype == torch.bool else value + off for name, value in found.items()}


class Anew(SPRL):
    """After the search, wherever that ends."""

    def search(self, epochs):
        return super().search(epochs)._replace(afresh_from=1)


METHODS = {
    "standard": Standard(),
    "sprl": SPRL(T1=2, gamma_d=10.0),
    "sprl, evaluated": SPRL.as_released(T1=2, gamma_d=10.0),
    "sprl, on unlike machines": Unlike(T1=2, gamma_d=10.0),
    "sprl, T1 searched": SPRL(),
    "sprl, begun anew": Anew(),
    "co-teaching": CoTeaching(noise_rate=0.4),
    "mentornet, drawing": MentorNet(curriculum="pd", first_dropout=0.9, dropout=0.9),
}


def plain(shape, num_classes):
    """Without batch norm, whose statistics would be those of each process's share."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, num_classes))


def normed(shape, num_classes):
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, num_classes))


def trained(method, ranks, streamed=False, network=plain, device="cpu"):
    data = digits.load()
    y = torch.from_numpy(corrupt(data.y, "symmetric:0.4", 10, seed=0)).to(device)
    x = Streamed(data.x, torch.device("cpu")) if streamed else data.x.to(device)
    task = Task(x, y, 10, epochs=8, batch_size=100, ranks=ranks)
    state = start(task, method, network, Shared(ranks) if ranks.count > 1 else None)
    epochs = list(train(task, state))
    weights = torch.cat([p.detach().flatten() for p in state.networks.parameters()])
    return {"losses": torch.tensor([epoch.loss for epoch in epochs]), "weights": weights, "was_chosen": epochs[-1].chosen, **state.memory}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def one_of_many(rank, count, folder, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=count)
    ranks = Ranks(rank, count)
    found = {name: trained(method, ranks) for name, method in METHODS.items()}
    found["streamed"] = trained(METHODS["sprl"], ranks, streamed=True)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_they_equal_one_process_up_to_the_order_of_sums(tmp_path):
    count = 3  # batches of 100 fall into unequal shares
    torch.multiprocessing.spawn(one_of_many, (count, str(tmp_path), free_port()), nprocs=count)
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


def one_of_two_with_a_gpu(rank, folder, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)  # which lets processes share a GPU, as NCCL does not
    for name, sync_norm in (("synced", True), ("shares", False)):
        torch.save(trained(METHODS["sprl"], Ranks(rank, 2, sync_norm), network=normed, device="cuda"), f"{folder}/{name}{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_synced_batch_norm_is_that_of_the_whole_batch(tmp_path):
    torch.multiprocessing.spawn(one_of_two_with_a_gpu, (str(tmp_path), free_port()), nprocs=2)
    alone = trained(METHODS["sprl"], ALONE, network=normed, device="cuda")["losses"]
    synced, other, shares = (torch.load(tmp_path / f"{name}.pt")["losses"] for name in ("synced0", "synced1", "shares0"))
    assert torch.equal(synced, other)
    assert torch.allclose(synced, alone, rtol=0.01)
    assert (shares - alone).abs().max() > 5 * (synced - alone).abs().max()


@given(st.integers(0, 1000), st.integers(1, 17))
def test_shares_are_disjoint_complete_and_even(n, count):
    rows = torch.arange(n)
    parts = [Ranks(rank, count).mine(rows) for rank in range(count)]
    assert torch.equal(torch.cat(parts), rows)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert [rows[Ranks(rank, count).part(n)].tolist() for rank in range(count)] == [part.tolist() for part in parts]
