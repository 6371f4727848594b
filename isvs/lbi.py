"""The paper's iteration (Eq. 5, ViRoLBI): Linearized Bregman Iteration on pixel differences."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from isvs import _checks, grid
from isvs._sharding import batchwise
from isvs.batching import map_blocks
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

    Example:
      >>> print(f"{LBI().alpha(32, 32):.4f} {LBI(kappa=50).alpha(32, 32):.5f}")
      0.0202 0.00202
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
    """Where the iteration is, for one image or, with a leading axis, for a batch."""

    u: jax.Array  # [C, H, W]
    potential: jax.Array  # u + kappa D^T z, [C, H, W]
    down: jax.Array  # z on the edges down, [C, H-1, W]
    right: jax.Array  # z on the edges right, [C, H, W-1]


def init(x: jax.Array) -> State:
    """``u = z = 0``, for one image ``[C, H, W]``."""
    u = jnp.zeros_like(x)
    return State(u, u, grid.difference_down(u), grid.difference_right(u))


def step(state: State, x: jax.Array, solver: LBI) -> State:
    """One step of the iteration for one image ``[C, H, W]``.

        d = (D u - gamma) / nu,   gamma = kappa shrink(z)
        u <- u - kappa alpha (u - x + D^T d)
        z <- z + alpha d                            (both from the old u and gamma)

    The second line is computed as ``u + kappa D^T z <- u + kappa D^T z - kappa alpha (u - x)``, which is the same since
    ``alpha d`` is what `z` moves by: it needs the new `z` alone and not the `d` of four edges, and XLA on CPU then
    takes half the time.
    """
    alpha = solver.alpha(x.shape[1], x.shape[2])
    down = _advance_z(state.down, grid.difference_down(state.u), alpha, solver)
    right = _advance_z(state.right, grid.difference_right(state.u), alpha, solver)
    potential = state.potential - solver.kappa * alpha * (state.u - x)
    return State(potential - solver.kappa * grid.adjoint(down, right), potential, down, right)


def _advance_z(z: jax.Array, difference: jax.Array, alpha: float, solver: LBI) -> jax.Array:
    return z + (alpha / solver.nu) * (difference - solver.kappa * _shrinkage(z)[None] * z)


def _shrinkage(z: jax.Array) -> jax.Array:
    """``max(0, 1 - 1 / ||z||)`` per group, with a finite gradient (zero) at ``z = 0``."""
    norm_squared = jnp.maximum(grid.channel_dot(z, z), 1)
    # The root of the inverse, since XLA makes 1 / sqrt an rsqrt, which its CPU backend does not vectorise.
    return 1 - jnp.sqrt(1 / norm_squared)


def _step_all(state: State, x: jax.Array, solver: LBI) -> State:
    return jax.vmap(functools.partial(step, solver=solver))(state, x)


def advance(state: State, x: jax.Array, steps: int, solver: LBI) -> State:
    """Several steps of a batch ``[b, C, H, W]``: the recurring work of training that carries the iteration along."""
    return jax.lax.scan(lambda s, _: (_step_all(s, x, solver), None), state, length=steps)[0]


def in_support(z: jax.Array) -> jax.Array:
    """Whether ``gamma`` is not zero: ``[b, C, h, w]`` to bool ``[b, h, w]``."""
    return jax.vmap(grid.channel_dot)(z, z) > 1


class Records(NamedTuple):
    """What is kept of the images at the first step at which each level is reached."""

    steps: jax.Array  # int32 [b, L], -1 until then
    u: jax.Array  # [b, L, C, H, W]
    down: jax.Array  # bool [b, L, H-1, W], the support
    right: jax.Array  # bool [b, L, H, W-1]


def record_path(
    x: jax.Array, levels: jax.Array, solver: LBI, *, rematerialise: bool = False
) -> Records:
    """Runs a batch ``[b, C, H, W]`` until every image has reached its levels ``[b, L]``, or to the bound on steps.

    With `rematerialise`, one state per chunk of steps is stored for the backward pass, and the others computed again.
    """
    # The smallest number of edges that makes the level; the offset absorbs the rounding of, say, 0.6 * 1000.
    needed = jnp.ceil(levels * grid.edge_count(*x.shape[2:]) - 1e-3).astype(jnp.int32)

    Carry = tuple[State, Records]

    def search(state: State, _: None) -> tuple[State, jax.Array]:
        state = _step_all(state, x, solver)
        return state, support_size(state)

    def record(carry: Carry, number: jax.Array) -> tuple[Carry, None]:
        state = _step_all(carry[0], x, solver)
        return (state, _look(state, carry[1], number, needed)), None

    def chunk(carry: Carry, numbers: jax.Array) -> Carry:
        state, records = carry
        end, sizes = jax.lax.scan(search, state, length=_CHUNK)  # sizes: [steps, b]
        reached = (records.steps < 0) & (jnp.max(sizes, axis=0)[:, None] >= needed)
        # Keeping the records at hand costs more than a step does; so the steps of a chunk are taken without, and once
        # more with them if a level was reached among them.
        records = jax.lax.cond(
            jnp.any(reached),
            lambda: jax.lax.scan(record, (state, records), numbers)[0][1],
            lambda: records,
        )
        return end, records

    if rematerialise:
        chunk = jax.checkpoint(chunk)

    def until_done(carry: Carry, numbers: jax.Array) -> tuple[Carry, None]:
        unfinished = jnp.any(carry[1].steps < 0)
        return jax.lax.cond(unfinished, chunk, lambda carry, _: carry, carry, numbers), None

    start = jax.vmap(init)(x)
    nothing = _look(start, _no_records(start, needed), jnp.zeros_like(needed, shape=()), needed)
    chunks = -(-solver.max_steps // _CHUNK)
    numbers = 1 + jnp.arange(chunks * _CHUNK, dtype=jnp.int32).reshape(chunks, _CHUNK)
    (_, records), _ = jax.lax.scan(until_done, (start, nothing), numbers)
    late = records.steps > solver.max_steps  # the last chunk may run over the bound
    return records._replace(steps=jnp.where(late, -1, records.steps))


def _no_records(start: State, needed: jax.Array) -> Records:
    def per_level(values: jax.Array) -> jax.Array:
        return jnp.repeat(values[:, None], needed.shape[1], axis=1)

    down, right = in_support(start.down), in_support(start.right)
    return Records(jnp.full_like(needed, -1), per_level(start.u), per_level(down), per_level(right))


def _look(state: State, records: Records, number: jax.Array, needed: jax.Array) -> Records:
    """Records the state of the images that have just reached a level; `needed` is ``[b, L]``."""
    reached = (records.steps < 0) & (support_size(state)[:, None] >= needed)

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(jnp.expand_dims(reached, range(2, old.ndim)), new[:, None], old)

    return Records(
        jnp.where(reached, number, records.steps),
        choose(state.u, records.u),
        choose(in_support(state.down), records.down),
        choose(in_support(state.right), records.right),
    )


def support_size(state: State) -> jax.Array:
    """How many edges of each image are in the support: int32 ``[b]``."""
    return _count(in_support(state.down)) + _count(in_support(state.right))


def _count(mask: jax.Array) -> jax.Array:
    """True values per image: bool ``[b, h, w]`` to int32 ``[b]``."""
    return jnp.sum(mask, axis=(1, 2), dtype=jnp.int32)


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

    Example:
      >>> import jax
      >>> path = lbi_path(jax.random.uniform(jax.random.key(0), (8, 8, 3)), [0.3, 0.6])
      >>> path.down.shape, path.steps.shape, bool(path.reached.all())
      ((2, 7, 8), (2,), True)
    """

    images: jax.Array
    down: jax.Array
    right: jax.Array
    steps: jax.Array
    sparsity: jax.Array
    reached: jax.Array


def lbi_path(images: Any, sparsities: Any, *, solver: LBI = LBI()) -> LBIPath:
    """Runs the paper's iteration once and records the image at each level.

    Each image stops for itself: what is recorded is the first step at which its own support has the level's share of
    edges.

    The run ends when every image of the batch has reached its levels. Under an outer `jax.vmap` it goes on to the
    bound: hand over the whole batch instead.

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


def run_path(
    images: jax.Array, levels: jax.Array, solver: LBI, *, rematerialise: bool = False
) -> LBIPath:
    """The path of checked images ``[..., H, W, C]`` at levels ``[L, ...]``."""
    run = functools.partial(_run_path, solver=solver, rematerialise=rematerialise)
    fields = batchwise(run, images, levels, trailing=3, results=[3, 2, 2, 0, 0, 0], leading=1)
    return LBIPath(*fields)


@functools.partial(jax.jit, static_argnames=("solver", "rematerialise"))
def _run_path(
    images: jax.Array, levels: jax.Array, solver: LBI, *, rematerialise: bool
) -> tuple[jax.Array, ...]:
    """The fields of an `LBIPath`."""
    *batch, height, width, channels = images.shape
    solver.alpha(height, width)  # an unstable step size fails here, not inside the scan
    flat = images.reshape(math.prod(batch), height, width, channels)
    pixels = flat.astype(jnp.promote_types(images.dtype, jnp.float32))

    def solve(planes: jax.Array, levels: jax.Array) -> Records:
        return record_path(planes, levels, solver, rematerialise=rematerialise)

    levels_of_each = levels.reshape(levels.shape[0], flat.shape[0]).T  # [B, L]
    records: Records = map_blocks(solve, pixels, levels_of_each, block_pixels=solver.block_pixels)
    # From one image after the other, [B, L, ...], to one level after the other, [L, B, ...].
    steps, u, down, right = (jnp.swapaxes(a, 0, 1) for a in records)
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
    sparsity = inside / max(1, grid.edge_count(height, width))
    steps = jnp.where(reached, steps, solver.max_steps)
    return tuple(restore(a) for a in (projected, down, right, steps, sparsity, reached))
