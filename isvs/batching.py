"""Runs a solver over a batch of images, block by block."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def map_blocks(
    solve: Callable[..., Any], images: jax.Array, *per_image: jax.Array, block_pixels: int
) -> Any:
    """Applies `solve` to a batch ``[B, H, W, C]``, some images at a time.

    Blocks keep the working memory of a solver small, whatever the batch: it holds a dozen arrays per image, but only
    for the block at hand. Images are dealt to blocks like cards (image ``i`` goes to block ``i % n``), so that each
    block has its share of every device's images and a batch-sharded array stays where it is.

    Args:
      solve: takes planes ``[b, C, H, W]`` and values ``[b, ...]``; returns a tree of arrays ``[b, ...]``.
      images: float ``[B, H, W, C]``.
      *per_image: values ``[B, ...]``.
      block_pixels: about how many pixels a block holds.
    """
    batch, height, width, _ = images.shape
    size = max(1, round(block_pixels / (height * width)))
    blocks = max(1, -(-batch // size))

    def solve_block(block: list[jax.Array]) -> Any:
        images, *values = block
        return solve(images.transpose(0, 3, 1, 2), *values)

    arguments = [images, *per_image]
    if blocks == 1:
        return solve_block(arguments)
    results = jax.lax.map(solve_block, [_deal(values, blocks) for values in arguments])
    return jax.tree.map(lambda a: _collect(a, batch), results)


def _deal(values: jax.Array, blocks: int) -> jax.Array:
    """``[B, ...]`` to ``[blocks, b, ...]``, padded at the end with zeros."""
    batch, *rest = values.shape
    size = -(-batch // blocks)
    padding = size * blocks - batch
    padded = jnp.pad(values, [(0, padding)] + [(0, 0)] * len(rest)) if padding else values
    return jnp.swapaxes(padded.reshape(size, blocks, *rest), 0, 1)


def _collect(results: jax.Array, batch: int) -> jax.Array:
    """``[blocks, b, ...]`` to ``[B, ...]``."""
    in_order = jnp.swapaxes(results, 0, 1)
    return in_order.reshape(math.prod(in_order.shape[:2]), *results.shape[2:])[:batch]
