"""Several runs on one GPU at once: each has its own stream, so that one fills the gaps that another leaves."""

from collections.abc import Callable, Iterator, Sequence

import torch

from sprl.engine import batch_sizes
from sprl.run import Row, Run

TURN = 64  # batches of one run before the next has its turn: enough for the GPU to be busy while the host ends an epoch of another


def together(runs: Sequence[Run]) -> Iterator[tuple[Run, Row | None]]:
    """Train all runs, yielding each epoch's row with its run, and None after each turn within an epoch.

    The numbers are those of each run alone. On a CPU they take turns all the same, which gains nothing.
    """
    device = runs[0].task.device
    streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in runs]
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # what was prepared on another stream is there
    left = [(run, run.train(turns(run)), stream) for run, stream in zip(runs, streams, strict=True)]
    while left:
        for turn in list(left):
            run, rows, stream = turn
            with torch.cuda.stream(stream):
                try:
                    row = next(rows)
                except StopIteration:
                    left.remove(turn)
                    continue
            yield run, row
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def turns(run: Run) -> Callable[[], bool]:
    """When a run's turn is over: after TURN batches, and after an epoch's last, so that the host need not wait for the GPU to finish it."""
    progress = run.state.progress

    def pause() -> bool:
        assert progress.rows is not None
        return progress.done % TURN == 0 or progress.done == len(batch_sizes(len(progress.rows), run.task.batch_size))

    return pause
