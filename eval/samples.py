"""Images for the report: their scale spaces, and what the network looked at in them."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import isvs
from eval.options import Options
from eval.subject import Subject
from eval.suites.base import pixels

SAMPLES = "samples.npz"
PANEL_ROWS = ("original", "blurred", "smoothed")
PANEL_COLUMNS = ("image", "Grad-CAM", "LRP")
_BLUR = (2.0, 3)  # standard deviation and side of the kernel in pixels, the paper's for CIFAR


def write_samples(subject: Subject, options: Options, folder: Path) -> None:
    """Writes samples.npz, unless it is there; whole or not at all."""
    path = folder / SAMPLES
    if path.exists() or options.samples == 0:
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
        **_panels(subject, images, labels),
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _panels(subject: Subject, images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    from eval.figures import explanation_panels
    from train.methods.blur import gaussian_blur

    plain = pixels(jnp.asarray(images))
    params, stats = subject.weights
    panels = explanation_panels(
        subject.forward.graph,
        params,
        stats,
        plain,
        jnp.asarray(labels),
        smoothed=jax.jit(isvs.smooth)(plain, subject.method.sparsity),
        blurred=jax.jit(gaussian_blur, static_argnums=(1, 2))(plain, *_BLUR),
        resize=subject.forward.resize,
    )
    return {
        "panels": np.asarray(panels),
        "panel_rows": np.array(PANEL_ROWS),
        "panel_columns": np.array(PANEL_COLUMNS),
    }
