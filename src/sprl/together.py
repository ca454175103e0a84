"""Several runs on one GPU at once: each has its own stream, so that one fills the gaps that another leaves."""

from collections.abc import Iterator, Sequence

import torch

from sprl import convolution
from sprl.errors import InputError
from sprl.run import Row, Run


class RunError(InputError):
    """What went wrong with one run of several."""

    def __init__(self, run: Run, error: InputError) -> None:
        super().__init__(f"seed {run.config.seed}: {error}")
        self.run, self.error = run, error


def together(runs: Sequence[Run]) -> Iterator[tuple[Run, Row | None]]:
    """Train all runs, a batch of each in turn; yields each epoch's row with its run, and None after every turn within an epoch.

    The numbers are those of each run alone. On a CPU they take turns all the same, which gains nothing. One batch a turn, since the GPU
    starts graphs in the order in which they were launched: many of one run would hold up the others.
    """
    device = runs[0].task.device
    streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in runs]
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # what was prepared on another stream is there
    left = [(run, run.train(lambda: True), stream) for run, stream in zip(runs, streams, strict=True)]
    convolution.alone = len(runs) == 1
    try:
        while left:
            for turn in list(left):
                run, rows, stream = turn
                with torch.cuda.stream(stream):
                    try:
                        row = next(rows)
                    except StopIteration:
                        left.remove(turn)
                        continue
                    except InputError as error:
                        raise RunError(run, error) from error
                yield run, row
    finally:
        convolution.alone = True
        if device.type == "cuda":
            torch.cuda.synchronize(device)
