"""Steps of several runs as the branches of one CUDA graph, which fills a GPU better than graphs that start one by one on their streams."""

import torch

from sprl.draws import Draws
from sprl.stepping import Due, Graph, warn

ROUNDS = 8  # of the same graphs in a row before they are captured as one: a run that ends an epoch is missing for a round or two


Posted = list[tuple[Due, torch.cuda.Stream]]  # with the streams of their runs


class Joint:
    """Takes the steps that runs would launch, and launches those of a round as one graph where the same have come often."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.posted: Posted = []
        self.graphs: dict[tuple[Graph, ...], torch.cuda.CUDAGraph] = {}
        self.last: tuple[Graph, ...] = ()
        self.times = 0  # that those came in a row
        self.works = True
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()  # one for all: they never run at once

    def post(self, due: Due) -> None:
        """In place of due.replay(). Its run does nothing more before `depart`."""
        self.posted.append((due, torch.cuda.current_stream()))

    def depart(self) -> None:
        """Launch what was posted, each after all that its run did before."""
        posted, self.posted = self.posted, []
        several = tuple(due.graph for due, _ in posted)
        self.times = self.times + 1 if several == self.last else 1
        self.last = several
        if self.works and len(several) > 1 and self.times == ROUNDS and several not in self.graphs:
            self.works = self.fits()
            if self.works and not self.capture(several, posted):
                return
        joint = self.graphs.get(several)
        if joint is None:
            launch(posted)
            return
        for _, stream in posted:
            self.stream.wait_stream(stream)
        with torch.cuda.stream(self.stream):
            joint.replay()
        for _, stream in posted:
            stream.wait_stream(self.stream)

    def end(self) -> None:
        """Launch what was posted before something broke, and give the memory back."""
        posted, self.posted = self.posted, []
        launch(posted)
        self.graphs, self.last = {}, ()

    def fits(self) -> bool:
        """Whether there is as much memory again as the runs, with their own graphs, have taken."""
        return torch.cuda.mem_get_info(self.device)[0] >= torch.cuda.memory_reserved(self.device)

    def capture(self, several: tuple[Graph, ...], posted: Posted) -> bool:
        """Whether it worked. If not, the steps are done as they are written, and their own graphs forgotten: a failed capture spoils the
        generators that it was to draw from."""
        self.graphs = {key: graph for key, graph in self.graphs.items() if any(part in several for part in key)}  # the rest is of the past
        if not self.graphs:
            self.pool = torch.cuda.graph_pool_handle()  # the old one ended with its last graph
        dues = [due for due, _ in posted]
        before = [due.state.draws.state() for due in dues]
        others = Draws(self.device, [0])  # in place of the caller's generator, which would be spoiled too
        joint = torch.cuda.CUDAGraph()
        try:
            for due in dues:
                joint.register_generator_state(due.state.draws.cuda)
            graph = torch.cuda.graph(joint, pool=self.pool, stream=self.stream, capture_error_mode="thread_local")
            with others.lent(), torch.cuda.stream(self.stream), graph:  # the stream by itself: a graph that fails leaves it current
                for due in dues:  # before any is waited for, since whatever starts later would wait for it too
                    due.stepper.stream.wait_stream(self.stream)
                for due in dues:
                    with torch.cuda.stream(due.stepper.stream), due.state.draws.lent():
                        due.trace()
                for due in dues:
                    self.stream.wait_stream(due.stepper.stream)
        except BaseException as error:
            self.works = False
            for (due, stream), draws in zip(posted, before, strict=True):
                due.state.draws.load(draws)
                due.stepper.forget()
                with torch.cuda.stream(stream), due.state.draws.lent():
                    due.trace()
            if not isinstance(error, Exception):  # Ctrl-C
                raise
            warn("the steps of several runs cannot be captured as one CUDA graph, so each has its own", error)
            return False
        self.graphs[several] = joint
        return True


def launch(posted: Posted) -> None:
    """Each on the stream of its run."""
    for due, stream in posted:
        with torch.cuda.stream(stream):
            due.replay()
