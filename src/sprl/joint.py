"""Steps of several runs as the branches of one CUDA graph, which fills a GPU better than graphs that start one by one on their streams."""

import torch

from sprl.stepping import Due, Graph, warn

ROUNDS = 8  # of the same graphs in a row before they are captured as one: a run that ends an epoch is missing for a round or two


class Joint:
    """Takes the steps that runs would launch, and launches those of a round as one graph where the same have come often."""

    def __init__(self, device: torch.device) -> None:
        self.posted: list[tuple[Due, torch.cuda.Stream]] = []
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
            self.works = self.capture(several, [due for due, _ in posted])
            if not self.works:
                for due, stream in posted:
                    with torch.cuda.stream(stream), due.state.draws.lent():
                        due.trace()
                return
        joint = self.graphs.get(several)
        if joint is None:
            for due, stream in posted:
                with torch.cuda.stream(stream):
                    due.replay()
            return
        for _, stream in posted:
            self.stream.wait_stream(stream)
        with torch.cuda.stream(self.stream):
            joint.replay()
        for _, stream in posted:
            stream.wait_stream(self.stream)

    def capture(self, several: tuple[Graph, ...], dues: list[Due]) -> bool:
        """Whether it worked. If not, their own graphs are forgotten: a failed capture spoils the generators that it was to draw from."""
        self.graphs = {key: graph for key, graph in self.graphs.items() if any(part in several for part in key)}  # the rest is of the past
        before = [due.state.draws.state() for due in dues]
        joint = torch.cuda.CUDAGraph()
        try:
            for due in dues:
                joint.register_generator_state(due.state.draws.cuda)
            with torch.cuda.graph(joint, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                for due in dues:  # before any is waited for, since whatever starts later would wait for it too
                    due.stepper.stream.wait_stream(self.stream)
                for due in dues:
                    with torch.cuda.stream(due.stepper.stream), due.state.draws.lent():
                        due.trace()
                for due in dues:
                    self.stream.wait_stream(due.stepper.stream)
        except Exception as error:
            warn("the steps of several runs cannot be captured as one CUDA graph, so each has its own", error)
            for due, draws in zip(dues, before, strict=True):
                due.state.draws.load(draws)
                due.stepper.forget()
            return False
        self.graphs[several] = joint
        return True
