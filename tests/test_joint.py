"""Which steps are launched together, on a GPU that is played; tests/test_cuda.py has a real one."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from sprl.errors import SprlWarning
from sprl.joint import ROUNDS, Joint

done = []  # what was launched
free = [6]  # memory


class Stream:
    def __init__(self, *device):
        pass

    def wait_stream(self, other):
        pass


class Played:
    """A CUDA graph: what is traced while it is captured is what it replays."""

    capturing = None

    def __init__(self):
        self.steps = []

    def register_generator_state(self, generator):
        pass

    def replay(self):
        done.append(" and ".join(self.steps))


@contextmanager
def played_graph(graph, **options):
    Played.capturing = graph
    try:
        yield
    finally:
        Played.capturing = None


class Draws:
    cuda = None

    def __init__(self, name):
        self.name, self.out, self.loaded = name, False, None

    @contextmanager
    def lent(self):
        self.out = True
        yield
        self.out = False

    def state(self):
        return f"draws of {self.name}"

    def load(self, saved):
        self.loaded, self.out = saved, False


class Step:
    """A run's captured step."""

    def __init__(self, name, broken=None):
        self.name, self.broken, self.forgotten = name, broken, False
        self.graph, self.state = object(), SimpleNamespace(draws=Draws(name))
        self.stepper = SimpleNamespace(stream=Stream(), forget=self.forget)

    def forget(self):
        self.forgotten = True

    def replay(self):
        done.append(self.name)

    def trace(self):
        assert self.state.draws.out
        if Played.capturing is None:
            done.append(f"{self.name} as it is written")
        elif self.broken:
            raise self.broken
        else:
            Played.capturing.steps.append(self.name)


@pytest.fixture
def launched(monkeypatch):
    """What a round of these steps launches."""
    for name, value in {"Stream": Stream, "CUDAGraph": Played, "graph": played_graph, "current_stream": Stream}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 10))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 4)
    free[0] = 6
    joint = Joint(torch.device("cpu"))

    def launched(*steps):
        done.clear()
        for step in steps:
            joint.post(step)
        assert not done
        joint.depart()
        return list(done)

    launched.joint = joint
    return launched


def test_steps_that_come_together_often_become_one(launched):
    a, b = Step("a"), Step("b")
    for _ in range(ROUNDS - 1):
        assert launched(a, b) == ["a", "b"]
    assert launched(a, b) == launched(a, b) == ["a and b"]
    assert launched(b) == ["b"]  # a ends an epoch
    assert launched(a, b) == ["a and b"]
    assert launched() == []


def test_not_those_that_come_once_in_a_while(launched):
    a, b, last = Step("a"), Step("b"), Step("last of a")
    for _ in range(ROUNDS):
        assert launched(last, b) == ["last of a", "b"]
        assert launched(a) == ["a"]


def test_one_run_has_nothing_to_be_joined_with(launched):
    a = Step("a")
    assert {tuple(launched(a)) for _ in range(2 * ROUNDS)} == {("a",)}


def test_memory_that_is_not_there_is_not_taken(launched):
    free[0] = 3
    steps = Step("a"), Step("b")
    assert {tuple(launched(*steps)) for _ in range(2 * ROUNDS)} == {("a", "b")}


def test_ctrl_c_loses_no_step(launched):
    a, b = Step("a"), Step("b", broken=KeyboardInterrupt())
    for _ in range(ROUNDS - 1):
        launched(a, b)
    with pytest.raises(KeyboardInterrupt):
        launched(a, b)
    assert done == ["a as it is written", "b as it is written"]


def test_what_was_posted_before_something_broke_is_launched(launched):
    a = Step("a")
    launched.joint.post(a)
    done.clear()
    launched.joint.end()
    assert done == ["a"]


def test_what_cannot_be_joined_is_done_as_it_is_written_and_not_tried_again(launched):
    a, b = Step("a"), Step("b", broken=RuntimeError("not in a graph"))
    for _ in range(ROUNDS - 1):
        launched(a, b)
    with pytest.warns(SprlWarning, match=r"each has its own \(not in a graph\)"):
        assert launched(a, b) == ["a as it is written", "b as it is written"]
    assert [step.forgotten for step in (a, b)] == [True, True]
    assert [step.state.draws.loaded for step in (a, b)] == ["draws of a", "draws of b"]
    again = Step("a"), Step("b")
    assert {tuple(launched(*again)) for _ in range(2 * ROUNDS)} == {("a", "b")}
