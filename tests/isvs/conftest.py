import jax
import numpy as np
import pytest
import skimage.data
from PIL import Image


@pytest.fixture(autouse=True)
def strict_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield


def photograph(name, box, size):
    """A square part of a photograph (left, top, side), resized with antialiasing to [size, size, 3] in [0, 1]."""
    left, top, side = box
    picture = Image.fromarray(getattr(skimage.data, name)()).convert("RGB")
    picture = picture.crop((left, top, left + side, top + side))
    return np.asarray(picture.resize((size, size), Image.Resampling.LANCZOS), np.float32) / 255


@pytest.fixture(scope="session")
def colour_photographs():
    """[8, 32, 32, 3]."""
    boxes = [
        ("astronaut", (130, 0, 256)),
        ("astronaut", (0, 200, 300)),
        ("chelsea", (80, 30, 240)),
        ("chelsea", (0, 0, 300)),
        ("coffee", (150, 60, 320)),
        ("coffee", (0, 0, 400)),
        ("rocket", (200, 0, 400)),
        ("astronaut", (200, 150, 128)),
    ]
    return np.stack([photograph(name, box, 32) for name, box in boxes])


@pytest.fixture(scope="session")
def grey_photographs():
    """[4, 84, 84, 1]."""
    boxes = [
        ("astronaut", (0, 0, 512)),
        ("chelsea", (80, 0, 300)),
        ("coffee", (100, 0, 400)),
        ("camera", (0, 0, 512)),
    ]
    pictures = np.stack([photograph(name, box, 84) for name, box in boxes])
    return pictures.mean(-1, keepdims=True, dtype=np.float32)
