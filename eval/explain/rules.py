"""Rules of relevance propagation for linear layers, as gradients of modified layers.

A unit with activation a and relevance R carries the cotangent c = R / a. In these terms addition,
ReLU, max-pooling, mean-pooling, indexing and padding propagate relevance by their plain gradients:
a sum y = a + b gives R_a = a c and R_b = b c, shares in proportion; a maximum gives all to the
winner. So `jax.vjp` does the propagation, and only layers with weights need a rule. Nothing is
ever divided by a small activation, because c, not R, is what is handed down.

Biases would keep relevance for themselves. Theirs is shared among the layer's inputs in proportion
to the magnitude |a_i w_ij| of what each of them contributes.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

# A layer without its bias: f(a, w), linear in both.
Bilinear = Callable[[jax.Array, jax.Array], jax.Array]
Layer = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Rule:
    """How a layer z_j = sum_i a_i w_ij + b_j shares R_j among its inputs.

    R_ij = g_ij / D_j R_j, where g_ij is a_i w_ij, and (1 + gamma) a_i w_ij if its sign is that of
    z_j (the bias is treated likewise, then shared). D_j is the sum of all g_ij, moved away from
    zero by epsilon sum_i |a_i w_ij|. With gamma > 0 the shares of a unit are at most 1 + 2 / gamma
    in all, so that a deep network does not blow up; with gamma = 0 shares can be large where
    contributions cancel. Epsilon absorbs relevance, gamma does not.

    Attributes:
        gamma: how much contributions that agree with the unit's sign are favoured, 0 or more.
        epsilon: damping, 0 or more, as a fraction of the magnitudes that enter the unit.
    """

    gamma: float = 0.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.gamma < 0 or self.epsilon < 0:
            raise ValueError(f"expected gamma and epsilon of 0 or more, got {self}")


def epsilon(value: float = 1e-6) -> Rule:
    """The epsilon rule: shares in proportion to a_i w_ij."""
    return Rule(epsilon=value)


def gamma(value: float = 0.25) -> Rule:
    """The gamma rule: what agrees with the unit's sign is favoured."""
    # The damping only decides units whose contributions cancel to within rounding.
    return Rule(gamma=value, epsilon=1e-6)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def linear(f: Bilinear, rule: Rule, a: jax.Array, weights: jax.Array, bias: jax.Array) -> jax.Array:
    """f(a, weights) + bias, whose cotangents follow the rule.

    Args:
        f: the layer without bias.
        rule: how to share relevance.
        a: input.
        weights: of f.
        bias: broadcasts against the output.
    """
    return f(a, weights) + bias


def _linear_forward(
    f: Bilinear, rule: Rule, a: jax.Array, weights: jax.Array, bias: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    contributed = f(a, weights)
    return contributed + bias, (a, weights, bias, contributed)


def _linear_backward(
    f: Bilinear, rule: Rule, kept: tuple[jax.Array, ...], c: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    a, weights, bias, contributed = kept
    z = contributed + bias
    plus, minus = jnp.maximum(weights, 0), jnp.minimum(weights, 0)
    positive = f(jnp.maximum(a, 0), plus) + f(jnp.minimum(a, 0), minus)
    magnitude = 2 * positive - contributed  # sum_i |a_i w_ij|
    up = z > 0
    favoured = jnp.where(up, positive, contributed - positive)
    bias_up = (bias > 0) == up
    g_bias = bias * jnp.where(bias_up, 1 + rule.gamma, 1)
    total = z + rule.gamma * (favoured + jnp.where(bias_up, bias, 0))
    total += jnp.where(up, rule.epsilon, -rule.epsilon) * magnitude
    s = c * _ratio(z, total)  # R_j / D_j
    shared = s * _ratio(g_bias, magnitude)
    agree = jnp.where(up, 1 + rule.gamma, 1) * s + shared  # meets a_i w_ij > 0
    oppose = jnp.where(up, 1, 1 + rule.gamma) * s - shared  # meets a_i w_ij < 0
    _, transposed = jax.vjp(lambda x: (f(x, plus), f(x, minus)), a)
    (c_above,), (c_below,) = transposed((agree, oppose)), transposed((oppose, agree))
    c_a = jnp.where(a > 0, c_above, c_below)
    return c_a, jnp.zeros_like(weights), jnp.zeros_like(bias)


linear.defvjp(_linear_forward, _linear_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def boxed(
    f: Bilinear,
    shares: jax.Array,
    pixels: jax.Array,
    low: jax.Array,
    high: jax.Array,
    weights: jax.Array,
    bias: jax.Array,
) -> jax.Array:
    """f(pixels, weights) + bias as a first layer by the z^B rule (Montavon et al. 2017).

    R_ij is in proportion to x_i w_ij - low_i w_ij^+ - high_i w_ij^-, which is never negative, so
    that a unit's shares have its sign and dark pixels can be relevant as well as bright ones.

    Args:
        f: the layer without bias.
        shares: ones in the shape of `pixels`; their cotangent is the relevance of the pixels.
        pixels: input of f, between `low` and `high`.
        low: least pixel values, in the shape of `pixels`.
        high: greatest pixel values, in the shape of `pixels`.
        weights: of f.
        bias: broadcasts against the output.
    """
    return f(pixels, weights) + bias


def _boxed_forward(
    f: Bilinear, shares: jax.Array, *kept: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return boxed(f, shares, *kept), kept


def _boxed_backward(
    f: Bilinear, kept: tuple[jax.Array, ...], c: jax.Array
) -> tuple[jax.Array | None, ...]:
    pixels, low, high, weights, bias = kept
    contributed = f(pixels, weights)

    def above_bounds(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
        return f(x, weights) - f(low, jnp.maximum(weights, 0)) - f(high, jnp.minimum(weights, 0))

    total, transposed = jax.vjp(above_bounds, pixels, low, high)
    s = c * _ratio(contributed + bias, total)
    relevance = sum(
        array * share for array, share in zip((pixels, low, high), transposed(s), strict=True)
    )
    return (relevance, *(jnp.zeros_like(array) for array in kept))


boxed.defvjp(_boxed_forward, _boxed_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def affine(layer: Layer, x: jax.Array, constants: jax.Array) -> jax.Array:
    """A layer taken as y = J x + k about its input: J propagates, k is a constant of the network.

    Args:
        layer: [B, ...] -> [B, ...], any function with a reverse derivative J.
        x: its input.
        constants: ones [B, 1, ...]; their cotangent is the relevance of k.
    """
    return layer(x)


def _affine_forward(
    layer: Layer, x: jax.Array, constants: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return layer(x), (x, constants)


def _affine_backward(
    layer: Layer, kept: tuple[jax.Array, jax.Array], c: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, constants = kept
    y, transposed = jax.vjp(layer, x)
    (c_x,) = transposed(c)
    lost = jax.vmap(jnp.vdot)(y, c) - jax.vmap(jnp.vdot)(x, c_x)  # [B]
    return c_x, lost.reshape(constants.shape)


affine.defvjp(_affine_forward, _affine_backward)


@jax.custom_jvp
def gelu(z: jax.Array) -> jax.Array:
    """The GELU, with the ratio of output to input for a gradient: relevance passes unchanged."""
    return jax.nn.gelu(z, approximate=False)


@gelu.defjvp
def _gelu_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (z,), (tangent,) = primals, tangents
    return gelu(z), jax.scipy.stats.norm.cdf(z) * tangent


def _ratio(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    """Quotients, 0 where nothing is to be shared or nobody is there to share it."""
    # Below the smallest normal number quotients overflow.
    safe = jnp.abs(denominator) > jnp.finfo(denominator.dtype).tiny
    return jnp.where(safe, numerator / jnp.where(safe, denominator, 1), 0)
