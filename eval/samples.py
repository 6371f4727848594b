"""Images for the report: their scale spaces, and what the network looked at in them."""

import os
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import isvs
from eval import preprocessing
from eval.options import Options
from eval.subject import Subject
from eval.suites.base import pixels

SAMPLES = "samples.npz"
# What a file shows that does not say so: an earlier version wrote it.
_EARLIER = (preprocessing.BARE, preprocessing.PAPER)


def write_samples(subject: Subject, options: Options, folder: Path) -> None:
    """Writes samples.npz, unless it is there and shows all that is asked for; whole or not at all."""
    path = folder / SAMPLES
    shown = _shown(path)
    wanted = tuple(name for name in preprocessing.NAMES if name in {*shown, *options.preprocess})
    if options.samples == 0 or {*shown} == {*wanted}:
        return
    split = subject.limited(options.samples)
    count = min(options.samples, len(split))
    batch = next(subject.batches(split, options.batch_size, num_workers=0))
    images = np.asarray(batch["image"])[:count]
    labels = np.asarray(batch["label"])[:count]
    space = jax.jit(isvs.encode)(pixels(jnp.asarray(images)))
    content = {
        "images": images,
        "down": np.asarray(space.down),
        "right": np.asarray(space.right),
        "labels": labels,
        "preprocess": np.array(wanted),
        **_panels(subject, wanted, images, labels),
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _shown(path: Path) -> tuple[str, ...]:
    """The preprocessings in a file; none if there is no file, or one that cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return tuple(file["preprocess"].tolist()) if "preprocess" in file else _EARLIER
    except (OSError, ValueError, zipfile.BadZipFile):
        return ()


def _panels(
    subject: Subject, names: tuple[str, ...], images: np.ndarray, labels: np.ndarray
) -> dict[str, np.ndarray]:
    from eval.figures import explanation_panels, panels

    versions = panels.versions(subject, names, pixels(jnp.asarray(images)))
    pictures = explanation_panels(
        subject.forward.graph,
        *subject.weights,
        jnp.asarray(labels),
        versions,
        resize=subject.forward.resize,
    )
    return {
        "panels": np.asarray(pictures),
        "panel_rows": np.array(list(versions)),
        "panel_columns": np.array(panels.COLUMNS),
    }
