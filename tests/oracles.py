"""What the library is tested against: slow NumPy and SciPy, sharing no code with it."""

from collections.abc import Iterator

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg
import scipy.stats


def literal_lbi(
    image: np.ndarray, steps: int, kappa: float = 5.0, nu: float = 1.0
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields u, z_down, z_right after each step of the paper's Eq. 5, in float64; image is [H, W, C]."""
    x = image.astype(np.float64)
    height, width, _ = x.shape
    difference = difference_matrix(height, width)
    hessian = np.block(
        [
            [np.eye(height * width) + difference.T @ difference / nu, -difference.T / nu],
            [-difference / nu, np.eye(difference.shape[0]) / nu],
        ]
    )
    alpha = 1 / (kappa * np.linalg.norm(hessian, 2))
    flat = x.reshape(height * width, -1)
    u = np.zeros_like(flat)
    z = np.zeros((difference.shape[0], flat.shape[1]))
    for _ in range(steps):
        norms = np.linalg.norm(z, axis=1, keepdims=True)
        gamma = kappa * np.maximum(0, 1 - 1 / np.maximum(norms, 1e-300)) * z
        residual = (difference @ u - gamma) / nu
        u, z = u - kappa * alpha * (u - flat + difference.T @ residual), z + alpha * residual
        split = (height - 1) * width
        yield (
            u.reshape(x.shape),
            z[:split].reshape(height - 1, width, -1),
            z[split:].reshape(height, width - 1, -1),
        )


def difference_matrix(height: int, width: int) -> np.ndarray:
    """D as a dense matrix: the edges down, row by row, then the edges right."""
    index = np.arange(height * width).reshape(height, width)
    pairs = np.concatenate(
        [
            np.stack([index[:-1].ravel(), index[1:].ravel()], 1),
            np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], 1),
        ]
    )
    matrix = np.zeros((len(pairs), height * width))
    matrix[np.arange(len(pairs)), pairs[:, 0]] = -1
    matrix[np.arange(len(pairs)), pairs[:, 1]] = 1
    return matrix


def dense_projection(image: np.ndarray, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(I - D_c^+ D_c) x with the pseudo-inverse of the tied rows."""
    height, width, channels = image.shape
    tied = difference_matrix(height, width)[np.concatenate([down.ravel(), right.ravel()])]
    flat = image.reshape(-1, channels).astype(np.float64)
    return (flat - np.linalg.pinv(tied) @ (tied @ flat)).reshape(image.shape)


def lsqr_projection(image: np.ndarray, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The same by least squares, one channel after the other."""
    height, width, channels = image.shape
    tied = difference_matrix(height, width)[np.concatenate([down.ravel(), right.ravel()])]
    flat = image.reshape(-1, channels).astype(np.float64)
    sparse = scipy.sparse.csr_array(tied)
    columns = [
        flat[:, c] - scipy.sparse.linalg.lsqr(sparse, tied @ flat[:, c], atol=1e-12, btol=1e-12)[0]
        for c in range(channels)
    ]
    return np.stack(columns, -1).reshape(image.shape)


def scipy_labels(down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Components by SciPy, named by the smallest flat index in each."""
    height, width = right.shape[0], down.shape[1]
    index = np.arange(height * width).reshape(height, width)
    start = np.concatenate([index[:-1][down], index[:, :-1][right]])
    end = np.concatenate([index[1:][down], index[:, 1:][right]])
    graph = scipy.sparse.coo_array(
        (np.ones(len(start)), (start, end)), shape=(height * width, height * width)
    )
    _, names = scipy.sparse.csgraph.connected_components(graph, directed=False)
    smallest = np.full(names.max() + 1, height * width)
    np.minimum.at(smallest, names, np.arange(height * width))
    return smallest[names].reshape(height, width)


def support_overlap(
    a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Intersection over union of two supports, per image."""
    both = sum(
        np.sum(np.asarray(p) & np.asarray(q), axis=(-2, -1)) for p, q in zip(a, b, strict=True)
    )
    either = sum(
        np.sum(np.asarray(p) | np.asarray(q), axis=(-2, -1)) for p, q in zip(a, b, strict=True)
    )
    return both / either


def total_variation(images: np.ndarray) -> np.ndarray:
    """The sum of group norms of all differences, per image."""
    images = np.asarray(images, np.float64)
    down, right = np.diff(images, axis=-3), np.diff(images, axis=-2)
    return np.linalg.norm(down, axis=-1).sum((-2, -1)) + np.linalg.norm(right, axis=-1).sum(
        (-2, -1)
    )


def psnr(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Peak signal-to-noise ratio in decibel, per image."""
    error = (np.asarray(a, np.float64) - np.asarray(b, np.float64)) ** 2
    return -10 * np.log10(error.mean((-3, -2, -1)))


def dense_springs(
    image: np.ndarray, down: np.ndarray, right: np.ndarray, stiffness: float
) -> np.ndarray:
    """(I + mu D_c^T D_c)^-1 x with the tied rows written out, in float64."""
    height, width, channels = image.shape
    tied = difference_matrix(height, width)[np.concatenate([down.ravel(), right.ravel()])]
    flat = image.reshape(-1, channels).astype(np.float64)
    matrix = np.eye(height * width) + np.float64(stiffness) * tied.T @ tied
    return np.linalg.solve(matrix, flat).reshape(image.shape)


def despeckled(plane: np.ndarray, area: int, contrast: float) -> tuple[np.ndarray, np.ndarray]:
    """One channel [H, W] without its spots, and which pixels changed: flood fill, then loops over the spots."""
    regions = _flood_fill(plane, np.asarray(contrast, plane.dtype))
    speckle = {pixel for region in regions if len(region) <= area for pixel in region}
    cleaned, changed = plane.astype(np.float64), np.zeros(plane.shape, bool)
    for region in regions:
        # A pixel around the spot counts once for each side that it shares with it.
        around = [at for pixel in region for at in _beside(pixel, plane.shape) if at not in speckle]
        if around and region <= speckle:
            for pixel in region:
                cleaned[pixel] = np.mean([float(plane[at]) for at in around])
                changed[pixel] = True
    return cleaned, changed


def _flood_fill(plane: np.ndarray, contrast: np.ndarray) -> list[set[tuple[int, int]]]:
    """The sets of pixels joined by steps below the contrast."""
    regions: list[set[tuple[int, int]]] = []
    left = set(np.ndindex(*plane.shape))
    while left:
        border = [left.pop()]
        region = set(border)
        while border:
            pixel = border.pop()
            for at in _beside(pixel, plane.shape):
                if at in left and abs(plane[pixel] - plane[at]) < contrast:
                    left.remove(at)
                    region.add(at)
                    border.append(at)
        regions.append(region)
    return regions


def _beside(pixel: tuple[int, int], shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """The two, three or four pixels that share a side with one."""
    i, j = pixel
    around = [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
    return [(i, j) for i, j in around if 0 <= i < shape[0] and 0 <= j < shape[1]]


def noise_by_sorting(image: np.ndarray) -> float:
    """The noise of one image [H, W, C]: contrasts between channels, squares of four pixels, the lower median."""
    x = image.astype(np.float64)
    channels = x.shape[-1]
    contrasts = [
        (x[..., :k].sum(-1) - k * x[..., k]) / np.sqrt(k * (k + 1)) for k in range(1, channels)
    ]
    sizes = [
        abs(v[i, j] - v[i + 1, j] - v[i, j + 1] + v[i + 1, j + 1]) / 2
        for v in (contrasts or [x[..., 0]])
        for i in range(x.shape[0] - 1)
        for j in range(x.shape[1] - 1)
    ]
    return float(np.sort(sizes)[(len(sizes) - 1) // 2] / scipy.stats.norm.ppf(0.75))


def gaussian_noise(sigma: float, shape: tuple[int, ...]) -> np.ndarray:
    """The same float32 draws for the same shape."""
    return (sigma * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
