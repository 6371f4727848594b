"""The paper's iteration (Eq. 5, ViRoLBI): Linearized Bregman Iteration on pixel differences."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from isvs import _checks, grid
from isvs.batching import map_images
from isvs.components import connected_components
from isvs.projection import component_means

# Steps between two looks at whether every image has stopped.
_CHUNK = 64


@dataclasses.dataclass(frozen=True)
class LBI:
    """The iteration's settings, with the paper's defaults.

    Attributes:
      kappa: damping; the iteration follows the inverse scale space more closely as it grows, in more steps.
      nu: the coupling of ``D u`` and ``gamma`` in the loss.
      step_size: ``alpha``; by default ``1 / (kappa ||Hessian||)``, half of the largest stable one.
      max_steps: where an image stops that has not reached its level. Its path ends at the image itself.
      block_pixels: about how many pixels are solved side by side.
    """

    kappa: float = 5.0
    nu: float = 1.0
    step_size: float | None = None
    max_steps: int = 30_000
    block_pixels: int = 1 << 16

    def __post_init__(self) -> None:
        _checks.positive("kappa", self.kappa)
        _checks.positive("nu", self.nu)
        _checks.count("max_steps", self.max_steps)
        _checks.count("block_pixels", self.block_pixels)
        if self.step_size is not None:
            _checks.positive("step_size", self.step_size)

    def alpha(self, height: int, width: int) -> float:
        """The step size for an image size; fails if the given one is not stable there."""
        s = math.sqrt(grid.operator_norm_squared(height, width))
        coupled = [[1 + s * s / self.nu, -s / self.nu], [-s / self.nu, 1 / self.nu]]
        hessian_norm = float(np.linalg.eigvalsh(np.array(coupled))[-1])
        if self.step_size is None:
            return 1 / (self.kappa * hessian_norm)
        largest = 2 / (self.kappa * hessian_norm)
        if self.step_size >= largest:
            raise ValueError(
                f"step_size must be below {largest:.6g} for kappa={self.kappa:g}, nu={self.nu:g} at "
                f"{height}x{width} pixels, got {self.step_size:g}"
            )
        return self.step_size


class State(NamedTuple):
    """Where the iteration is, for one tile of images ``[C, H, W * lanes]``."""

    u: jax.Array  # [C, H, W * lanes]
    down: jax.Array  # z on the edges down, [C, H-1, W * lanes]
    right: jax.Array  # z on the edges right, [C, H, (W-1) * lanes]


def init(x: jax.Array, lanes: int) -> State:
    """``u = z = 0``."""
    u = jnp.zeros_like(x)
    return State(u, grid.difference_down(u), grid.difference_right(u, lanes))


def step(state: State, x: jax.Array, lanes: int, solver: LBI) -> State:
    """One step of the iteration.

    d = (D u - gamma) / nu,   gamma = kappa shrink(z)
    u <- u - kappa alpha (u - x + D^T d)
    z <- z + alpha d                            (both from the old u and gamma)
    """
    alpha = solver.alpha(x.shape[1], x.shape[2] // lanes)
    down = _advance_z(state.down, grid.difference_down(state.u), alpha, solver)
    right = _advance_z(state.right, grid.difference_right(state.u, lanes), alpha, solver)
    # alpha d is what z moved by; taking it from there lets XLA compute each difference once.
    moved = grid.adjoint(down - state.down, right - state.right, lanes)
    u = state.u - solver.kappa * alpha * (state.u - x) - solver.kappa * moved
    return State(u, down, right)


def _advance_z(z: jax.Array, difference: jax.Array, alpha: float, solver: LBI) -> jax.Array:
    return z + (alpha / solver.nu) * (difference - solver.kappa * _shrinkage(z) * z)


def _shrinkage(z: jax.Array) -> jax.Array:
    """``max(0, 1 - 1 / ||z||)`` per group, with a finite gradient (zero) at ``z = 0``."""
    norm_squared = grid.channel_dot(z, z)
    inside = norm_squared <= 1
    return jnp.where(inside, 0, 1 - 1 / jnp.sqrt(jnp.where(inside, 1, norm_squared)))


def advance(state: State, x: jax.Array, lanes: int, steps: int, solver: LBI) -> State:
    """Several steps: the recurring work of training that carries the iteration along."""
    return jax.lax.scan(lambda s, _: (step(s, x, lanes, solver), None), state, length=steps)[0]


def in_support(z: jax.Array) -> jax.Array:
    """Whether ``gamma`` is not zero: ``[C, ...]`` to bool ``[...]``."""
    return grid.channel_dot(z, z) > 1


class Records(NamedTuple):
    """What is kept of a tile at the first step at which a level is reached."""

    steps: jax.Array  # int32 [lanes], -1 until then
    u: jax.Array  # [C, H, W * lanes]
    down: jax.Array  # bool [H-1, W * lanes], the support
    right: jax.Array  # bool [H, (W-1) * lanes]


def record_path(
    x: jax.Array, lanes: int, levels: jax.Array, solver: LBI, *, rematerialise: bool = False
) -> Records:
    """Runs a tile until every image has reached every level, or to the bound on steps.

    Args:
      x: a tile ``[C, H, W * lanes]``.
      lanes: how many images it holds.
      levels: ``[L, lanes]``.
      solver: the settings.
      rematerialise: store one state per chunk of steps for the backward pass, and compute the others again.

    Returns:
      Records with a leading axis L.
    """
    width = x.shape[2] // lanes
    # The smallest number of edges that makes the level; the offset absorbs the rounding of, say, 0.6 * 1000.
    needed = jnp.ceil(levels * grid.edge_count(x.shape[1], width) - 1e-3).astype(jnp.int32)

    def look(state: State, records: Records, number: jax.Array) -> Records:
        down, right = in_support(state.down), in_support(state.right)
        size = _count(down, lanes) + _count(right, lanes)
        reached = (records.steps < 0) & (size >= needed)  # [L, lanes]

        def write(records: Records) -> Records:
            def choose(new: jax.Array, old: jax.Array) -> jax.Array:
                mask = jnp.tile(reached, old.shape[-1] // lanes)  # [L, w * lanes]
                return jnp.where(jnp.expand_dims(mask, range(1, old.ndim - 1)), new, old)

            return Records(
                jnp.where(reached, number, records.steps),
                choose(state.u, records.u),
                choose(down, records.down),
                choose(right, records.right),
            )

        return jax.lax.cond(jnp.any(reached), write, lambda records: records, records)

    Carry = tuple[State, Records]

    def one_step(carry: Carry, number: jax.Array) -> tuple[Carry, None]:
        state = step(carry[0], x, lanes, solver)
        return (state, look(state, carry[1], number)), None

    def chunk(carry: Carry, numbers: jax.Array) -> tuple[Carry, None]:
        def run(carry: Carry) -> Carry:
            return jax.lax.scan(one_step, carry, numbers)[0]

        if rematerialise:
            run = jax.checkpoint(run)
        return jax.lax.cond(jnp.any(carry[1].steps < 0), run, lambda carry: carry, carry), None

    start = init(x, lanes)
    levels_axis = jnp.zeros_like(levels[:, :1], dtype=x.dtype)  # [L, 1]
    empty = Records(
        jnp.full_like(needed, -1),
        levels_axis[..., None, None] + start.u,
        (levels_axis[..., None] + start.down[0]) > 0,
        (levels_axis[..., None] + start.right[0]) > 0,
    )
    empty = look(
        start, empty, jnp.zeros_like(needed, shape=())
    )  # level 0 holds before the first step
    chunks = -(-solver.max_steps // _CHUNK)
    numbers = 1 + jnp.arange(chunks * _CHUNK, dtype=jnp.int32).reshape(chunks, _CHUNK)
    (_, records), _ = jax.lax.scan(chunk, (start, empty), numbers)
    late = records.steps > solver.max_steps  # the last chunk may run over the bound
    return records._replace(steps=jnp.where(late, -1, records.steps))


def _count(mask: jax.Array, lanes: int) -> jax.Array:
    """True values per image: bool ``[h, w * lanes]`` to int32 ``[lanes]``."""
    rows = jnp.sum(mask, axis=0, dtype=jnp.int32)
    return jnp.sum(rows.reshape(rows.shape[0] // lanes, lanes), axis=0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LBIPath:
    """Images along the iteration, one for each level asked for.

    An image that did not reach a level within the bound on steps has its own pixels there (the end of the path), with
    the edges between different pixels as support.

    Attributes:
      images: ``[L, ..., H, W, C]``: means of ``u`` over components (the paper's projection).
      down: bool ``[L, ..., H-1, W]``: the support, True where the two pixels are not tied.
      right: bool ``[L, ..., H, W-1]``.
      steps: int32 ``[L, ...]``: the first step at which the support reached the level, or the bound.
      sparsity: float32 ``[L, ...]``: the share of edges in the support.
      reached: bool ``[L, ...]``: whether the level was reached within the bound.
    """

    images: jax.Array
    down: jax.Array
    right: jax.Array
    steps: jax.Array
    sparsity: jax.Array
    reached: jax.Array


def lbi_path(images: Any, sparsities: Any, *, solver: LBI = LBI()) -> LBIPath:  # noqa: B008 (frozen)
    """Runs the paper's iteration once and records the image at each level.

    Each image stops for itself: what is recorded is the first step at which its own support has the level's share of
    edges.

    Args:
      images: float ``[..., H, W, C]`` in [0, 1].
      sparsities: levels in [0, 1], ``[L]``.
      solver: the iteration's settings.

    Example:
      >>> import jax
      >>> path = lbi_path(jax.random.uniform(jax.random.key(0), (8, 8, 3)), [0.3, 0.6])
      >>> path.images.shape, bool((path.sparsity >= jax.numpy.array([0.3, 0.6])).all())
      ((2, 8, 8, 3), True)
    """
    images = _checks.images(images)
    if not isinstance(solver, LBI):
        raise TypeError(f"lbi_path needs solver=isvs.LBI(...), got {type(solver).__name__}")
    if isinstance(sparsities, list | tuple):
        sparsities = np.asarray(sparsities, np.float32)
    if np.ndim(sparsities) != 1 or np.size(sparsities) == 0:
        raise ValueError(f"sparsities must be levels [L], got shape {np.shape(sparsities)}")
    levels = _checks.sparsity(sparsities, np.shape(sparsities))
    batch = images.shape[:-3]
    levels = jnp.broadcast_to(levels.reshape(-1, *[1] * len(batch)), (levels.shape[0], *batch))
    return run_path(images, levels, solver)


@functools.partial(jax.jit, static_argnames=("solver", "rematerialise"))
def run_path(
    images: jax.Array, levels: jax.Array, solver: LBI, *, rematerialise: bool = False
) -> LBIPath:
    """The path of checked images ``[..., H, W, C]`` at levels ``[L, ...]``."""
    *batch, height, width, channels = images.shape
    solver.alpha(height, width)  # an unstable step size fails here, not inside the scan
    flat = images.reshape(math.prod(batch), height, width, channels)
    pixels = flat.astype(jnp.promote_types(images.dtype, jnp.float32))

    def solve(tile: jax.Array, lanes: int, levels: jax.Array) -> Records:
        return record_path(tile, lanes, levels.T, solver, rematerialise=rematerialise)

    records: Records = map_images(
        solve,
        pixels,
        levels.reshape(levels.shape[0], flat.shape[0]).T,
        block_pixels=solver.block_pixels,
    )
    # From one image after the other, [B, L, ...], to one level after the other, [L, B, ...].
    steps, u, down, right = (jnp.moveaxis(a, 1, 0) for a in records)
    steps = steps[..., 0]  # a row of one place
    u = jnp.moveaxis(u, 2, -1)  # [L, B, H, W, C]
    reached = steps >= 0
    differs_down = jnp.any(pixels[:, 1:] != pixels[:, :-1], axis=-1)
    differs_right = jnp.any(pixels[:, :, 1:] != pixels[:, :, :-1], axis=-1)
    there = reached[..., None, None]
    down, right = jnp.where(there, down, differs_down), jnp.where(there, right, differs_right)
    projected = component_means(u, connected_components(~down, ~right))
    projected = jnp.where(there[..., None], projected, pixels).astype(images.dtype)

    def restore(a: jax.Array) -> jax.Array:
        return a.reshape(a.shape[0], *batch, *a.shape[2:])

    inside = jnp.sum(down, axis=(-2, -1)) + jnp.sum(right, axis=(-2, -1))
    return LBIPath(
        images=restore(projected),
        down=restore(down),
        right=restore(right),
        steps=restore(jnp.where(reached, steps, solver.max_steps)),
        sparsity=restore(inside / max(1, grid.edge_count(height, width))),
        reached=restore(reached),
    )
