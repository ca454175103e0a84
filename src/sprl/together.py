"""Several runs on one GPU at once: a step of each is a branch of one graph, so that one fills the gaps that another leaves."""

from collections.abc import Iterator, Sequence

import torch

from sprl import convolution
from sprl.errors import InputError
from sprl.joint import Joint
from sprl.run import Row, Run


class RunError(InputError):
    """What went wrong with one run of several."""

    def __init__(self, run: Run, error: InputError) -> None:
        super().__init__(f"seed {run.config.seed}: {error}")
        self.run, self.error = run, error


def together(runs: Sequence[Run]) -> Iterator[tuple[Run, Row | None]]:
    """Train all runs, a batch of each in turn; yields each epoch's row with its run, and None after every turn within an epoch.

    The numbers are those of each run alone. On a CPU they take turns all the same, which gains nothing.
    """
    device = runs[0].task.device
    on_gpu = device.type == "cuda"
    streams = [torch.cuda.Stream(device) if on_gpu else None for _ in runs]
    joint = Joint(device) if on_gpu else None
    if on_gpu:
        torch.cuda.synchronize(device)  # what was prepared on another stream is there
    left = [(run, run.train(lambda: True), stream) for run, stream in zip(runs, streams, strict=True)]
    launches = [run.state.launch for run in runs]
    failure: RunError | None = None
    convolution.alone = len(runs) == 1
    try:
        if joint:
            for run in runs:
                run.state.launch = joint.post
        while left:
            done: list[tuple[Run, Row | None]] = []
            for turn in list(left):
                run, rows, stream = turn
                try:
                    with torch.cuda.stream(stream):
                        done.append((run, next(rows)))
                except StopIteration:
                    left.remove(turn)
                except InputError as error:
                    failure = RunError(run, error)
                    break
            if joint:
                joint.depart()
            yield from done  # from here on each may be saved
            if failure:
                raise failure from failure.error
    finally:
        convolution.alone = True
        failure = None  # it holds this frame, and with it all runs
        for run, launch in zip(runs, launches, strict=True):
            run.state.launch = launch
        if joint:
            joint.end()
        if on_gpu:
            torch.cuda.synchronize(device)
