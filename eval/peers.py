"""The same mathematics with NumPy and SciPy, as one would write it without this project; it shares no code with it."""

import math
from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.ndimage
import scipy.sparse
import scipy.sparse.linalg

# A pixel of a grid seen as ndimage sees it: tied to the four around it.
_FOUR_NEIGHBOURS = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], bool)


def step_size(height: int, width: int, kappa: float) -> float:
    """The paper's ``alpha = 1 / (kappa ||Hessian||)`` at ``nu = 1``."""
    s_squared = sum(4 * math.sin(math.pi * (n - 1) / (2 * n)) ** 2 for n in (height, width))
    s = math.sqrt(s_squared)
    return 1 / (kappa * float(np.linalg.eigvalsh([[1 + s_squared, -s], [-s, 1.0]])[-1]))


class NumpyLBI:
    """The paper's iteration (Eq. 5, ``nu = 1``) on a batch of images, float32, in preallocated buffers.

    Arrays are seen as ``[C, H, W, B]``. In memory they are in this order with `batch_last`: the slices that differences
    take are then long contiguous runs. Without, they stay as images come, ``[B, H, W, C]``.

    Attributes:
      u: float32 ``[C, H, W, B]``.
    """

    def __init__(self, images: np.ndarray, *, batch_last: bool = True, kappa: float = 5.0) -> None:
        _, height, width, _ = images.shape
        self._kappa = np.float32(kappa)
        self._alpha = np.float32(step_size(height, width, kappa))
        planes = images.astype(np.float32).transpose(3, 1, 2, 0)
        # The buffers below take over the order in memory.
        self._x = np.ascontiguousarray(planes) if batch_last else planes
        self.u = np.zeros_like(self._x)
        self._pull = np.empty_like(self._x)
        # z, what it moves by, a product, and its norm; for the edges down and right.
        self._z = [np.zeros_like(self._x[:, 1:]), np.zeros_like(self._x[:, :, 1:])]
        self._moved = [np.empty_like(z) for z in self._z]
        self._product = [np.empty_like(z) for z in self._z]
        self._norm = [np.empty_like(z[0]) for z in self._z]

    def iterate(self, steps: int) -> None:
        """Advances every image."""
        u, pull = self.u, self._pull
        before = (u[:, :-1], u[:, :, :-1])
        after = (u[:, 1:], u[:, :, 1:])
        pull_before = (pull[:, :-1], pull[:, :, :-1])
        pull_after = (pull[:, 1:], pull[:, :, 1:])
        for _ in range(steps):
            np.subtract(self._x, u, out=pull)
            pull *= self._alpha
            for axis in (0, 1):
                moved = self._move(axis, before[axis], after[axis])
                pull_before[axis][...] += moved
                pull_after[axis][...] -= moved
            pull *= self._kappa
            u += pull

    def _move(self, axis: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """``z += alpha (D u - kappa shrink(z))`` along one axis; returns what was added."""
        z, moved, product, norm = (
            a[axis] for a in (self._z, self._moved, self._product, self._norm)
        )
        np.multiply(z, z, out=product)
        np.add.reduce(product, axis=0, out=norm)
        np.maximum(norm, 1, out=norm)
        np.sqrt(norm, out=norm)
        np.divide(self._kappa, norm, out=norm)
        np.subtract(self._kappa, norm, out=norm)  # kappa (1 - 1 / ||z||), zero inside the unit ball
        np.multiply(norm, z, out=product)
        np.subtract(after, before, out=moved)
        moved -= product
        moved *= self._alpha
        z += moved
        return moved

    def images(self) -> np.ndarray:
        """`u` as float32 ``[B, H, W, C]``."""
        return self.u.transpose(3, 1, 2, 0)

    def support(self) -> tuple[np.ndarray, np.ndarray]:
        """The edges whose ``gamma`` is not zero: bool ``[B, H-1, W]`` and ``[B, H, W-1]``."""
        down, right = (np.moveaxis(np.sum(z * z, axis=0) > 1, -1, 0) for z in self._z)
        return down, right


def tied_differences(down: np.ndarray, right: np.ndarray) -> scipy.sparse.csr_array:
    """``D_c``: a row of -1 and +1 for each tie; ties are bool ``[H-1, W]`` and ``[H, W-1]``."""
    first, second = _tied_pixels(down, right)
    ties, pixels = first.size, right.shape[0] * down.shape[1]
    rows = np.arange(ties)
    values = np.concatenate([np.full(ties, -1.0), np.full(ties, 1.0)])
    places = (np.concatenate([rows, rows]), np.concatenate([first, second]))
    return scipy.sparse.csr_array((values, places), shape=(ties, pixels))


def graph_labels(down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Components by SciPy's graph search: int ``[H, W]``, numbered as they come."""
    first, second = _tied_pixels(down, right)
    shape = (right.shape[0], down.shape[1])
    pixels = shape[0] * shape[1]
    graph = scipy.sparse.coo_array(
        (np.ones(first.size, np.int8), (first, second)), (pixels, pixels)
    )
    _, labels = scipy.sparse.csgraph.connected_components(graph.tocsr(), directed=False)
    return labels.reshape(shape)


def ndimage_labels(down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Components by SciPy's image labelling, on a grid with a cell for every pixel and for every tie between two."""
    height, width = right.shape[0], down.shape[1]
    cells = np.zeros((2 * height - 1, 2 * width - 1), bool)
    cells[::2, ::2] = True
    cells[1::2, ::2] = down
    cells[::2, 1::2] = right
    labels, _ = scipy.ndimage.label(cells, _FOUR_NEIGHBOURS)
    return labels[::2, ::2]


def graph_projection(image: np.ndarray, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The mean of each component, of ``[H, W, C]``."""
    labels = graph_labels(down, right).ravel()
    sizes = np.bincount(labels)
    means = [np.bincount(labels, plane.ravel()) / sizes for plane in np.moveaxis(image, -1, 0)]
    return np.stack(means, axis=-1)[labels].reshape(image.shape)


def lsqr_projection(image: np.ndarray, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``u - D_c^+ D_c u``, with the pseudo-inverse applied by LSQR, channel by channel."""
    matrix = tied_differences(down, right)

    def project(plane: np.ndarray) -> np.ndarray:
        # From zero LSQR goes to the solution of least norm, which is what the pseudo-inverse gives.
        solution = scipy.sparse.linalg.lsqr(matrix, matrix @ plane, atol=1e-8, btol=1e-8)
        return plane - solution[0]

    return _by_channel(project, image)


def svd_projection(image: np.ndarray, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``u - D_c^+ D_c u``, with the dense singular value decomposition of ``D_c``."""
    matrix = tied_differences(down, right).toarray()
    _, values, directions = scipy.linalg.svd(matrix, full_matrices=False, overwrite_a=True)
    kept = directions[values > 1e-10 * max(matrix.shape)]
    return _by_channel(lambda plane: plane - kept.T @ (kept @ plane), image)


def _by_channel(project: Callable[[np.ndarray], np.ndarray], image: np.ndarray) -> np.ndarray:
    planes = image.reshape(-1, image.shape[-1]).astype(np.float64).T
    return np.stack([project(plane) for plane in planes], axis=-1).reshape(image.shape)


def _tied_pixels(down: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The flat indices of the two pixels of every tie."""
    height, width = right.shape[0], down.shape[1]
    index = np.arange(height * width).reshape(height, width)
    first = np.concatenate([index[:-1][down], index[:, :-1][right]])
    second = np.concatenate([index[1:][down], index[:, 1:][right]])
    return first, second
