"""The ten outlines of the drawn data set, as signed distances in their own unit coordinates.

Each function takes coordinates `x`, `y` of equal shape and returns about the signed distance to
the outline: negative inside. "About" is enough, because only the last half pixel on either side
of the outline becomes a grey level; all have slope one there, so edges are equally soft for
every class. Outlines are centred near the origin and have radius near one.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from train.data.dataset import FloatArray

_SQRT_HALF = np.float32(np.sqrt(0.5))

Outline = Callable[[FloatArray, FloatArray], FloatArray]


def _box(x: FloatArray, y: FloatArray, half_width: float, half_height: float) -> FloatArray:
    return np.maximum(np.abs(x) - half_width, np.abs(y) - half_height)


def _circle(x: FloatArray, y: FloatArray, radius: float) -> FloatArray:
    return np.sqrt(x * x + y * y) - radius


def _triangle_pointing_right(
    x: FloatArray, y: FloatArray, inner_radius: float, slope: float
) -> FloatArray:
    """The largest of three half planes: the back, and two flanks that meet on the x axis."""
    flank = np.cos(slope) * x + np.sin(slope) * np.abs(y)
    return np.maximum(-x, flank) - inner_radius


def disc(x: FloatArray, y: FloatArray) -> FloatArray:
    """A filled circle."""
    return _circle(x, y, 1.0)


def ring(x: FloatArray, y: FloatArray) -> FloatArray:
    """A circle with a round hole."""
    return np.abs(_circle(x, y, 0.76)) - 0.24


def triangle(x: FloatArray, y: FloatArray) -> FloatArray:
    """An equilateral triangle that stands on a side."""
    return _triangle_pointing_right(-y, x, inner_radius=0.55, slope=np.pi / 3)


def square(x: FloatArray, y: FloatArray) -> FloatArray:
    """A square."""
    return _box(x, y, 0.85, 0.85)


def cross(x: FloatArray, y: FloatArray) -> FloatArray:
    """A plus sign: two bars of equal length that cross in their middles."""
    return np.minimum(_box(x, y, 1.0, 0.32), _box(x, y, 0.32, 1.0))


def star(x: FloatArray, y: FloatArray) -> FloatArray:
    """A five-pointed star: one half of one point, folded out ten times."""
    inner_radius = 0.45
    half_turn = np.float32(np.pi / 5)
    angle = np.abs(np.mod(np.arctan2(x, y), 2 * half_turn) - half_turn)  # 0 at a notch
    radius = np.sqrt(x * x + y * y)
    along, across = radius * np.cos(angle), radius * np.sin(angle)
    # The edge runs from the notch (inner_radius, 0) to the tip (cos, sin)(half_turn).
    edge = np.array([np.cos(half_turn) - inner_radius, np.sin(half_turn)], np.float32)
    edge /= np.linalg.norm(edge)
    return (along - inner_radius) * edge[1] - across * edge[0]


def crescent(x: FloatArray, y: FloatArray) -> FloatArray:
    """A disc out of which a second disc has bitten one side."""
    return np.maximum(_circle(x + 0.2, y, 1.0), -_circle(x - 0.3, y, 0.78))


def heart(x: FloatArray, y: FloatArray) -> FloatArray:
    """A square that stands on a corner, with a half disc on its two upper sides."""
    half = 0.58
    x, y = (x - y) * _SQRT_HALF + 0.2, (-x - y) * _SQRT_HALF + 0.2
    lobes = np.minimum(_circle(x - half, y, half), _circle(x, y - half, half))
    return np.minimum(_box(x, y, half, half), lobes)


def arrow(x: FloatArray, y: FloatArray) -> FloatArray:
    """A bar that ends in a wide head, pointing up."""
    x, y = -y, x
    head = _triangle_pointing_right(x - 0.3, y, inner_radius=0.4, slope=np.pi / 3.6)
    return np.minimum(_box(x + 0.6, y, 0.55, 0.27), head)


def tee(x: FloatArray, y: FloatArray) -> FloatArray:
    """The letter T: a bar, and another that starts from its middle."""
    return np.minimum(_box(x, y + 0.6, 0.95, 0.3), _box(x, y - 0.3, 0.3, 0.9))


OUTLINES: dict[str, Outline] = {
    outline.__name__: outline
    for outline in (disc, ring, triangle, square, cross, star, crescent, heart, arrow, tee)
}


@cache
def unit_area(name: str) -> float:
    """Area that the outline encloses, so that all classes can be drawn equally large."""
    side, reach = 400, 2.5
    axis = np.linspace(-reach, reach, side, dtype=np.float32)
    x, y = np.meshgrid(axis, axis)
    inside = OUTLINES[name](x, y) < 0
    return float(inside.mean()) * (2 * reach) ** 2
