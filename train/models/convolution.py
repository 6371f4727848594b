"""Convolution whose gradient stays fast inside loops.

XLA on CPU rewrites a convolution's kernel for its fast path, but not inside the body of a loop,
where attacks spend all their time: there the gradient with respect to the images, a convolution
with the mirrored kernel, is several times slower than outside. Mirroring the kernel in plain sight
leaves nothing to rewrite. Values and gradients are those of `jax.lax.conv_general_dilated`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

_LAYOUT = ("NHWC", "HWIO", "NHWC")
# What `nnx.Conv` passes where nothing special is asked for.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "lhs_dilation": ((1, 1),),
    "rhs_dilation": ((1, 1),),
    "dimension_numbers": (_LAYOUT, jax.lax.conv_dimension_numbers((0,) * 4, (0,) * 4, _LAYOUT)),
    "feature_group_count": (1,),
    "precision": (None,),
    "out_sharding": (None,),
}

Padding = tuple[tuple[int, int], ...]


def convolve(
    images: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    **options: Any,
) -> jax.Array:
    """A convolution [B, H, W, I], [h, w, I, O] -> [B, H', W', O], for `nnx.Conv`.

    Args:
        images: what to convolve.
        kernel: in HWIO order.
        strides: by axis.
        padding: zeros before and after, by axis.
        **options: of `jax.lax.conv_general_dilated`; they must have their plain values.

    Raises:
        ValueError: for an option that this function does not have.
    """
    for name, value in options.items():
        if name not in _PLAIN or value not in _PLAIN[name]:
            raise ValueError(f"{name}: expected one of {_PLAIN.get(name, ())}, got {value!r}")
    return _convolve(images, kernel, tuple(strides), tuple((a, b) for a, b in padding))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(
    images: jax.Array, kernel: jax.Array, strides: tuple[int, ...], padding: Padding
) -> jax.Array:
    return jax.lax.conv_general_dilated(images, kernel, strides, padding, dimension_numbers=_LAYOUT)


def _forward(
    images: jax.Array, kernel: jax.Array, strides: tuple[int, ...], padding: Padding
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _convolve(images, kernel, strides, padding), (images, kernel)


def _backward(
    strides: tuple[int, ...],
    padding: Padding,
    saved: tuple[jax.Array, jax.Array],
    cotangent: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    images, kernel = saved

    def of_kernel(kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            images, kernel, strides, padding, dimension_numbers=_LAYOUT
        )

    _, pull = jax.vjp(of_kernel, kernel)
    mirrored = jnp.flip(kernel, (0, 1)).swapaxes(2, 3)  # [h, w, O, I]
    around = []
    for axis, (stride, (before, _)) in enumerate(zip(strides, padding, strict=True)):
        size, taps = images.shape[axis + 1], kernel.shape[axis]
        spread = (cotangent.shape[axis + 1] - 1) * stride + 1
        start = taps - 1 - before
        around.append((start, size - (spread + start - taps + 1)))
    of_images = jax.lax.conv_general_dilated(
        cotangent, mirrored, (1, 1), around, lhs_dilation=strides, dimension_numbers=_LAYOUT
    )
    return of_images, pull(cotangent)[0]


_convolve.defvjp(_forward, _backward)
