"""What is done to images before the network: nothing, our smoothing, or a peer at its fitted strength."""

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import isvs
from eval.cleaning.peers import PEERS, Pool, Setting, denoise

Images = jax.Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class Smoothing:
    """`isvs.smooth` with its arguments; level 1 without the speckle rule is the image itself."""

    sparsity: Any
    stiffness: float = math.inf
    speckle: Any = None

    @property
    def definition(self) -> str:
        """The call."""
        return repr(self)

    def start(self, pool: Pool, images: jax.Array) -> Callable[[], Images]:
        """JAX computes in the background by itself."""
        cleaned = self(images)
        return lambda: cleaned

    def __call__(self, images: jax.Array) -> jax.Array:
        """Smooths a batch."""
        return images if self == NONE else _smooth(self, images)


@functools.partial(jax.jit, static_argnums=0)
def _smooth(how: Smoothing, images: jax.Array) -> jax.Array:
    return isvs.smooth(images, how.sparsity, stiffness=how.stiffness, speckle=how.speckle)


@dataclasses.dataclass(frozen=True)
class Denoising:
    """A peer with its setting."""

    name: str
    setting: Setting

    @property
    def definition(self) -> str:
        """The call, with its setting in one order."""
        return f"{self.name} {json.dumps(dict(self.setting), sort_keys=True)}"

    def start(self, pool: Pool, images: jax.Array) -> Callable[[], Images]:
        """Hands the images to the pool."""
        return pool.start(self.name, self.setting, np.asarray(images))

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Denoises a batch in this process."""
        return denoise(self.name, self.setting, images)


# One row of the table. Measurements under another `definition` do not count for it.
Preprocessing = Smoothing | Denoising

NONE = Smoothing(1.0)


def ours() -> dict[str, Smoothing]:
    """Our rows, by name."""
    return {
        "none": NONE,
        "paper": Smoothing(0.6),
        "speckle": Smoothing(1.0, speckle=isvs.Speckle()),
        "soft": Smoothing(0.4, stiffness=5.0, speckle=isvs.Speckle()),
        "auto": Smoothing(isvs.AutoLevel()),  # what "auto" stands for, with its thresholds
    }


def peers(strengths: Path) -> dict[str, Denoising]:
    """The peers at the strengths that were chosen.

    Raises:
        ValueError: if the file is not what `fit-peers` writes, or lacks a peer.
    """
    try:
        found = json.loads(strengths.read_text(encoding="utf-8"))["peers"]
        chosen = {name: dict(peer["chosen"]) for name, peer in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{strengths}: expected the strengths that fit-peers writes, got {error!r}"
        ) from error
    if chosen.keys() != PEERS.keys():
        raise ValueError(
            f"{strengths}: expected the peers {', '.join(PEERS)}, got {', '.join(chosen)}; "
            "run fit-peers again"
        )
    return {name: Denoising(name, setting) for name, setting in chosen.items()}


def preprocessings(strengths: Path) -> dict[str, Preprocessing]:
    """All rows of the table, by name and in its order."""
    return {**ours(), **peers(strengths)}


def one_ahead(starts: Iterable[Callable[[], Callable[[], Images]]]) -> Iterator[Images]:
    """Results in order; each piece of work is begun before the one in front of it is handed out."""
    waiting: Callable[[], Images] | None = None
    for start in starts:
        begun = start()
        if waiting is not None:
            yield waiting()
        waiting = begun
    if waiting is not None:
        yield waiting()
