"""Steps of several runs as the branches of one CUDA graph, which fills a GPU better than graphs that start one by one on their streams."""

import torch

from sprl.stepping import Graph, warn

ROUNDS = 8  # of the same graphs in a row before they are captured as one: a run that ends an epoch is missing for a round or two


class Joint:
    """Takes the graphs that runs would launch, and launches those of a round as one where the same have come often."""

    def __init__(self, device: torch.device) -> None:
        self.posted: list[tuple[Graph, torch.cuda.Stream]] = []
        self.graphs: dict[tuple[Graph, ...], torch.cuda.CUDAGraph] = {}
        self.last: tuple[Graph, ...] = ()
        self.times = 0  # that those came in a row
        self.works = True
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()  # one for all: they never run at once

    def post(self, graph: Graph) -> None:
        """In place of graph.replay(). Its run does nothing more before `depart`."""
        self.posted.append((graph, torch.cuda.current_stream()))

    def depart(self) -> None:
        """Launch what was posted, each after all that its run did before."""
        posted, self.posted = self.posted, []
        several = tuple(graph for graph, _ in posted)
        self.times = self.times + 1 if several == self.last else 1
        self.last = several
        if self.works and len(several) > 1 and self.times == ROUNDS and several not in self.graphs and not self.capture(several):
            for graph, stream in posted:
                with torch.cuda.stream(stream), graph.state.draws.lent():
                    graph.step()
            return
        joint = self.graphs.get(several)
        if joint is None:
            for graph, stream in posted:
                with torch.cuda.stream(stream):
                    graph.replay()
            return
        for _, stream in posted:
            self.stream.wait_stream(stream)
        with torch.cuda.stream(self.stream):
            joint.replay()
        for _, stream in posted:
            stream.wait_stream(self.stream)

    def capture(self, several: tuple[Graph, ...]) -> bool:
        """Whether it worked. If not, the graphs cannot be used again: a failed capture spoils the generators that it was to draw from."""
        self.graphs = {key: graph for key, graph in self.graphs.items() if any(part in several for part in key)}  # the rest is of the past
        states = [graph.state for graph in several]
        before = [state.draws.state() for state in states]
        joint = torch.cuda.CUDAGraph()
        try:
            for state in states:
                joint.register_generator_state(state.draws.cuda)
            with torch.cuda.graph(joint, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                for graph in several:
                    graph.stream.wait_stream(self.stream)  # all of them first: what is waited for below, others would wait for too
                for graph in several:
                    with torch.cuda.stream(graph.stream), graph.state.draws.lent():
                        graph.step()
                for graph in several:
                    self.stream.wait_stream(graph.stream)
        except Exception as error:
            warn("the steps of several runs cannot be captured as one CUDA graph, so each has its own", error)
            self.works = False
            for state, draws in zip(states, before, strict=True):
                state.draws.load(draws)
                state.stepper.forget()
            return False
        self.graphs[several] = joint
        return True
