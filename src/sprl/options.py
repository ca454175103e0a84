"""The options that several commands share, in the words of their help."""

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sprl import spread

if TYPE_CHECKING:
    from sprl.config import Config

Data = Annotated[
    str | None,
    typer.Argument(
        metavar="DATA",
        help="A folder with a folder of pictures for each class (or train/ and test/ of these); a .csv or .parquet with path,label or with "
        "features and label; an .npz with x, y[, x_test, y_test]; a saved Hugging Face data set; or a set that `sprl data` lists. "
        "None: a demonstration on digits.",
    ),
]
LabelColumn = Annotated[str, typer.Option(metavar="NAME", help="The column of a table that holds the labels.")]
Labels = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Other labels for the same rows: a CSV with id,label; an .npy in the rows' order; or, for cifar10, human:worse, human:aggre, "
        "human:random1 (2, 3), for cifar100 human:noisy.",
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without the pictures that cannot be read.")]
Size = Annotated[
    int | None,
    typer.Option(
        metavar="PIXELS",
        help="Side of the square that picture files become: the shorter side is scaled, the centre cut out. Default: their own size up to "
        "64 x 64, else the median short side, at most 64; a timm model's own; 32 x 32 for mini-imagenet, food101 and clothing1m.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Weights to start a timm network from (.safetensors, .pth), or `pretrained` to download its own."),
]
Frozen = Annotated[bool, typer.Option("--frozen", help="Embed all pictures once with the timm network and train a head on that.")]
Rows = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Train on N rows drawn at random, the same share of each class, the same rows whatever the seed. Default: all.",
    ),
]
Stream = Annotated[bool, typer.Option("--stream", help="Read rows batch by batch even where all would fit into memory.")]
MethodName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How to train; `sprl methods` lists them. auto is sprl, but standard for colour pictures and the small CNN, which SPRL keeps "
        "from learning.",
    ),
]
Network = Annotated[
    str,
    typer.Option(metavar="NAME", help="resnet18, convnet, cnn, mlp, auto, or timm:NAME; fields follow a colon: resnet18:stem=released."),
]
Epochs = Annotated[
    int | None, typer.Option(metavar="N", help="Epochs in all. Default: 200 for pictures on a GPU, 20 from given weights, else 60.")
]
BatchSize = Annotated[int | None, typer.Option(metavar="B", help="Rows a step. Default: 128, or 32 for small data.")]
Rate = Annotated[float | None, typer.Option("--lr", metavar="LR", help="Learning rate of Adam. Default: 0.001, from given weights 0.0001.")]
Augment = Annotated[
    bool | None,
    typer.Option(
        "--augment/--no-augment",
        help="Shift pictures at random, flip those in colour. Default: if they have 16 x 16 pixels or more. Smaller ones are shifted by 1.",
    ),
]
Cutout = Annotated[
    int | None,
    typer.Option(
        metavar="PIXELS",
        help="Hide a square of so many pixels a side, elsewhere each time, in each picture trained on; 0: none. Default: a quarter of the "
        "side for ResNet18 on colour pictures, else none.",
    ),
]
Seed = Annotated[int, typer.Option(metavar="S", min=0, help="Seeds label noise, first weights and batches, each on its own.")]
NoiseRate = Annotated[float | None, typer.Option(metavar="R", help="Tells the share of wrong labels, if you know it.")]
Corrupt = Annotated[
    str | None,
    typer.Option(
        metavar="KIND:VALUE",
        help="Damages labels for an experiment: symmetric:0.5, wrong ones drawn from the other classes; symmetric-all:0.5, drawn from all; "
        "pair:0.4; matrix:Q.csv, of transitions; generated:400, by the network itself, trained on 400 right labels a class.",
    ),
]
DataDir = Annotated[str | None, typer.Option(metavar="DIR", help="Where DATA is looked for. Default: $SPRL_DATA, else ./data.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, or auto: the GPU where there is one.")]
Precision = Annotated[
    str, typer.Option(metavar="NAME", help="Arithmetic of the networks: bf16, fp32, or auto: bf16 on a GPU that has it, else fp32.")
]
Memory = Annotated[
    str,
    typer.Option(metavar="SIZE", help="Previous predictions, rows x classes, in 4 bytes each (full) or in 2 (half), if short of memory."),
]
Graph = Annotated[
    bool | None,
    typer.Option("--graph/--no-graph", help="Steps as captured CUDA graphs. Default: for the networks named here, not for timm's."),
]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="Compile the step for the GPU. Default: if that saves twice what it costs.")
]

SyncNorm = Annotated[
    bool, typer.Option("--sync-norm", help="With torchrun, on GPUs: batch norm over the whole batch, not over each process's share.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="J", min=1, help="Processes. Default: one a core, of one thread each; on a GPU one; on Ray as many as there is room for."
    ),
]
Together = Annotated[int, typer.Option(metavar="R", min=1, help="Runs that each process trains side by side on the GPU.")]
Engine = Annotated[
    spread.Engine,
    typer.Option(help="Processes on this machine, or tasks of a Ray cluster: that of $RAY_ADDRESS or `ray start`, else one started here."),
]
Gpu = Annotated[
    float | None,
    typer.Option(metavar="F", min=0, max=1, help="Share of a GPU that a process takes on Ray. Default: 1 where the cluster has GPUs."),
]
Shard = Annotated[
    str | None,
    typer.Option(metavar="I/N", help="Of all runs only every N-th from the I-th on, for job arrays: 1/N to N/N. The rest is left alone."),
]


def asked(params: dict[str, Any], **settled: Any) -> "Config":
    """The options of a command as a config, but for those that are settled otherwise."""
    from sprl.config import Config

    known = {f.name for f in fields(Config)}
    return Config(**{name: value for name, value in params.items() if name in known} | settled)
