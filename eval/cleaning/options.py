"""The options of the commands, each in one frozen value."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from train import models
from train.data import sources

Name = Literal[
    "none",
    "paper",
    "speckle",
    "soft",
    "auto",
    "tv",
    "nl_means",
    "wavelet",
    "median",
    "bilateral",
]
NAMES: tuple[Name, ...] = get_args(Name)
STRENGTHS, AUTO = (Path(__file__).with_name(name) for name in ("strengths.json", "auto.json"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """The network that judges, and its data.

    Attributes:
        weights: .safetensors file.
        model: the network that the weights are for.
        dataset: whose images to use; one that is held in memory.
        data_dir: where the data set's files lie.
    """

    weights: Path
    model: Annotated[str, tyro.conf.arg(metavar="|".join(models.NAMES))]
    dataset: Annotated[str, tyro.conf.arg(metavar="|".join(sources.CHOICES))] = "cifar10"
    data_dir: Path | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitOptions(NetworkOptions):
    """Choose for each peer the fixed strength with the best mean accuracy on training images.

    Attributes:
        limit: use so many training images, the last ones.
        batch_size: images in a step.
        out: where the strengths go.
    """

    limit: int = 1000
    batch_size: int = 500
    out: Path = STRENGTHS

    def __post_init__(self) -> None:
        _check_counts(self, "limit", "batch_size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoFitOptions(FitOptions):
    """Choose the constants of `isvs.AutoLevel` by mean accuracy on training images.

    Attributes:
        limit: use so many training images, the last ones.
        batch_size: images in a step.
        out: where the scores go.
    """

    out: Path = AUTO


@dataclasses.dataclass(frozen=True, kw_only=True)
class CarryOverOptions:
    """Show what the automatic level does to photographs of all sizes, and what fools it.

    Attributes:
        largest: leave out larger photographs, by their side in pixels.
    """

    largest: int = 512


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(NetworkOptions):
    """Measure every preprocessing on clean and noisy test images, chunk by chunk.

    The same command continues a table that was interrupted. Rows may be made at different times in one folder: the
    table shows all that are there, on the images that they have in common.

    Attributes:
        out: folder of chunks.jsonl, table.md and table.json.
        preprocess: which rows to measure or, with --print-only, to show; all by default.
        limit: use so many test images.
        strengths: what `fit-peers` wrote.
        chunk: images that every row is measured on before the next ones are begun.
        timed_images: in a batch, for the images per second of our rows.
        timed_peer_images: in a batch, for those of the peers.
        print_only: measure nothing; make the table of what is there.
    """

    out: Path
    preprocess: tuple[Name, ...] = NAMES
    limit: int | None = None
    strengths: Path = STRENGTHS
    chunk: int = 128
    timed_images: int = 512
    timed_peer_images: int = 256
    print_only: bool = False

    def __post_init__(self) -> None:
        _check_counts(self, "limit", "chunk", "timed_images", "timed_peer_images")
        if not self.preprocess:
            raise ValueError(f"--preprocess: expected some of {', '.join(NAMES)}, got none")


def _check_counts(options: NetworkOptions, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')}: expected 1 or more, got {value}")
