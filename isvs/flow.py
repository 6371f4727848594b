"""The limit dynamics of the iteration (kappa to infinity): the time at which every edge enters the support.

With ``L(u, gamma) = 1/2 ||u - x||^2 + 1/(2 nu) ||D u - gamma||^2`` the paper's Eq. 3 becomes, per edge (one C-vector
across the channels) with subgradient `rho`:

    inactive edge:  d rho/dt = D u / nu, until ||rho|| = 1: then it enters the support
    active edge:    ||rho|| = 1, gamma = <D u, rho> rho; rho turns towards D u; it leaves where <D u, rho> < 0
    always:         (nu I + D^T P D) u = nu x,   P = I (inactive), I - rho rho^T (active)

All three hold exactly in the limit; what is approximate here is that `u` is held fixed over a step of time and solved
to a few Chebyshev sweeps. Time is logarithmic, so steps are geometric.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from isvs import _checks, grid
from isvs.batching import map_blocks

# Above any time that matters; its inverse is still a normal float32.
_HUGE = 1e30
# An edge leaves if its rho would shrink by more than this in a step. Where ``D u`` is zero but for rounding, edges
# would leave and enter again and again, each time with a later entry.
_SLACK = 1e-5
# Sweeps in a row where many are needed: errors grow in between, and must not grow far.
_CYCLE = 4


@dataclasses.dataclass(frozen=True)
class Flow:
    """The limit solver: settings of the geometric time steps.

    Attributes:
      ratio: one step takes the time from ``t`` to ``ratio * t``; nearer to 1 is more accurate and slower.
      sweeps: Chebyshev sweeps for `u` in a step, started from the step before; a few, not many.
      horizon: the run ends at this multiple of the time at which the first edge enters. Later entries are placed by
        extrapolation from the state then.
      nu: the coupling of ``D u`` and ``gamma`` in the loss; the paper's default is 1.
      block_pixels: about how many pixels are solved side by side. The default keeps a block within a CPU's cache and
        still fills a GPU.

    Example:
      >>> Flow().steps, Flow(ratio=1.25, horizon=100.0).steps
      (91, 21)
    """

    ratio: float = 1.06
    sweeps: int = 2
    horizon: float = 200.0
    nu: float = 1.0
    block_pixels: int = 1 << 16

    def __post_init__(self) -> None:
        _checks.positive("ratio", self.ratio, above=1.0)
        _checks.positive("horizon", self.horizon, above=1.0)
        _checks.positive("nu", self.nu)
        _checks.count("sweeps", self.sweeps)
        _checks.count("block_pixels", self.block_pixels)

    @property
    def steps(self) -> int:
        """How many steps of time the horizon takes."""
        return math.ceil(math.log(self.horizon) / math.log(self.ratio))


class _Edges(NamedTuple):
    """The edges of one direction.

    `normaliser` is ``||rho||^2 = 1`` for an active edge and infinity for an inactive one, so that ``gamma`` is
    ``<D u, rho> rho / normaliser`` for both. The divisions by it have a second use: XLA on CPU computes cheap producers
    again in each consumer, and a division is not cheap, so that inner products over channels are computed once.
    """

    rho: jax.Array  # [C, h, w]
    normaliser: jax.Array  # [h, w]
    entry: jax.Array  # [h, w], the last time that the edge entered, infinity before


class _State(NamedTuple):
    time: jax.Array  # []
    u: jax.Array  # [C, H, W]
    down: _Edges
    right: _Edges


@functools.partial(jax.jit, static_argnames="solver")
def batch_entry_times(images: jax.Array, solver: Flow) -> tuple[jax.Array, jax.Array]:
    """The entry times of checked images ``[B, H, W, C]``: float ``[B, H-1, W]`` and ``[B, H, W-1]``."""
    # Times only choose; nothing here is to be differentiated.
    pixels = jax.lax.stop_gradient(images).astype(jnp.promote_types(images.dtype, jnp.float32))
    solve = jax.vmap(functools.partial(entry_times, solver=solver))
    times: tuple[jax.Array, jax.Array] = map_blocks(solve, pixels, block_pixels=solver.block_pixels)
    return times


def entry_times(x: jax.Array, solver: Flow) -> tuple[jax.Array, jax.Array]:
    """The time at which each edge enters the support.

    Args:
      x: one image, planes ``[C, H, W]``.
      solver: the settings.

    Returns:
      ``[H-1, W]`` for the edges down and ``[H, W-1]`` for those right; infinity for edges that never enter.
    """

    def step(state: _State, _: None) -> tuple[_State, None]:
        return _step(state, x, solver), None

    state, _ = jax.lax.scan(step, _init(x, solver), length=solver.steps)
    # The path ends at the image itself, so the edges still outside are driven by its differences from here on.
    slope_down, slope_right = _slopes(x, solver.nu)
    down = _extrapolate(state.down, slope_down, state.time)
    right = _extrapolate(state.right, slope_right, state.time)
    return down, right


def _slopes(u: jax.Array, nu: float) -> tuple[jax.Array, jax.Array]:
    return grid.difference_down(u) / nu, grid.difference_right(u) / nu


def _init(x: jax.Array, solver: Flow) -> _State:
    """The state at the time when the first edge is about to enter: until then every edge integrates a constant."""
    nu = solver.nu

    def at_rest(slope: jax.Array) -> _Edges:
        rho = jnp.zeros_like(slope)
        return _Edges(rho, rho[0] + jnp.inf, rho[0] + jnp.inf)

    down, right = (at_rest(slope) for slope in _slopes(x, nu))
    u = x
    for _ in range(_cycles(nu)):
        u = _relax(u, x, down, right, nu, sweeps=_CYCLE)
    slope_down, slope_right = _slopes(u, nu)
    steepest = jnp.maximum(_largest_norm_squared(slope_down), _largest_norm_squared(slope_right))
    # A flat image has no first entry; any time does, as long as it is finite.
    time = 0.999 / jnp.sqrt(jnp.maximum(steepest, 1e-20))
    return _State(
        time, u, down._replace(rho=time * slope_down), right._replace(rho=time * slope_right)
    )


def _cycles(nu: float) -> int:
    """How many times `_CYCLE` sweeps bring an error down to a millionth."""
    factor = (math.sqrt(nu + 8) - math.sqrt(nu)) / (math.sqrt(nu + 8) + math.sqrt(nu))
    per_cycle = 2 * factor**_CYCLE / (1 + factor ** (2 * _CYCLE))
    return math.ceil(math.log(1e-6) / math.log(per_cycle))


def _largest_norm_squared(slope: jax.Array) -> jax.Array:
    return jnp.max(grid.channel_dot(slope, slope), initial=0)


def _step(state: _State, x: jax.Array, solver: Flow) -> _State:
    duration = (solver.ratio - 1) * state.time
    slope_down, slope_right = _slopes(state.u, solver.nu)
    down = _advance(state.down, slope_down, state.time, duration)
    right = _advance(state.right, slope_right, state.time, duration)
    u = _relax(state.u, x, down, right, solver.nu, solver.sweeps)
    return _State(state.time + duration, u, down, right)


def _advance(edges: _Edges, slope: jax.Array, time: jax.Array, duration: jax.Array) -> _Edges:
    """Moves the edges of one direction through a step of time with ``slope = D u / nu`` held fixed."""
    rho, normaliser, entry = edges
    inactive = jnp.isinf(normaliser)
    norm, steepness, along = _measure(rho, slope)
    length = duration * steepness
    stays = ~inactive & (along * length >= -_SLACK)
    until_entry = jnp.where(inactive, _time_to_unit_norm(norm, steepness, along), _HUGE)
    enters = until_entry < duration
    # An active edge turns: rho + duration * slope, put back to unit norm (it cannot overshoot the slope's direction).
    # Any other one integrates, and stops at unit norm if it gets there.
    # (The root of the inverse, since XLA makes 1 / sqrt an rsqrt, which its CPU backend does not vectorise.)
    shrink = jnp.sqrt(1 / jnp.where(stays, 1 + length * (2 * along + length), 1))
    return _Edges(
        shrink[None] * (rho + jnp.minimum(until_entry, duration)[None] * slope),
        jnp.where(stays | enters, 1, jnp.inf),
        jnp.where(enters, time + until_entry, entry),
    )


def _measure(rho: jax.Array, slope: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``||rho||``, ``||slope||``, and the part of `rho` along the slope, ``<rho, slope> / ||slope||``."""
    norm = jnp.sqrt(grid.channel_dot(rho, rho))
    steepness = jnp.sqrt(grid.channel_dot(slope, slope))
    along = grid.channel_dot(rho, slope) / jnp.maximum(steepness, 1 / _HUGE)
    return norm, steepness, along


def _time_to_unit_norm(norm: jax.Array, steepness: jax.Array, along: jax.Array) -> jax.Array:
    """The positive root of ``||rho + t slope||^2 = 1``; huge where the slope is zero."""
    missing = jnp.maximum(1 - norm**2, 0)
    # This form of the root divides by a sum of like signs where it matters, so nothing cancels.
    divisor = steepness * (along + jnp.sqrt(along**2 + missing))
    return missing / jnp.maximum(divisor, 1 / _HUGE)


def _extrapolate(edges: _Edges, slope: jax.Array, time: jax.Array) -> jax.Array:
    """Entry times, with those still to come under a constant slope; infinity where the slope is zero."""
    norm, steepness, along = _measure(edges.rho, slope)
    later = jnp.where(steepness > 0, time + _time_to_unit_norm(norm, steepness, along), jnp.inf)
    return jnp.where(jnp.isfinite(edges.entry), edges.entry, later)


def _relax(
    u: jax.Array, x: jax.Array, down: _Edges, right: _Edges, nu: float, sweeps: int
) -> jax.Array:
    """Chebyshev sweeps on ``(nu I + D^T P D) u = nu x``.

    The sweeps are a loop and not written out: XLA on CPU would fuse one into the next and compute everything many
    times over.
    """

    def sweep(u: jax.Array, gain: jax.Array) -> tuple[jax.Array, None]:
        return u + gain * _residual(u, x, down, right, nu), None

    return jax.lax.scan(sweep, u, jnp.asarray(_gains(nu, sweeps), u.dtype))[0]


def _gains(nu: float, sweeps: int) -> list[float]:
    """One over the Chebyshev points of the spectrum, ``[nu, nu + 8]``: the steps that shrink every error alike.

    The usual form with momentum does the same to the error, but reads and writes one more array.
    """
    points = [nu + 4 + 4 * math.cos(math.pi * (j + 0.5) / sweeps) for j in range(sweeps)]
    # From both ends inwards, so that what one step lets grow the next one holds down.
    both_ends = [points.pop(0 if turn % 2 == 0 else -1) for turn in range(sweeps)]
    return [1 / point for point in both_ends]


def _residual(u: jax.Array, x: jax.Array, down: _Edges, right: _Edges, nu: float) -> jax.Array:
    def tied_part(difference: jax.Array, edges: _Edges) -> jax.Array:  # P D u
        along = grid.channel_dot(edges.rho, difference) / edges.normaliser
        return difference - along[None] * edges.rho

    return nu * (x - u) - grid.adjoint(
        tied_part(grid.difference_down(u), down), tied_part(grid.difference_right(u), right)
    )
