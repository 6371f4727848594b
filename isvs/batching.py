"""Runs a solver over a batch of images: interleaved into tiles, block by block."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from isvs import grid

# A tile's rows need not be longer than this: by then they fill any vector unit.
_ROW = 1024


def map_images(
    solve: Callable[..., Any], images: jax.Array, *per_image: jax.Array, block_pixels: int
) -> Any:
    """Applies `solve` to every image of ``[B, H, W, C]`` and stacks the results along a leading axis.

    Blocks keep the working memory of a solver small, whatever the batch: it holds a dozen arrays per image, but only
    for the block at hand. Images are dealt to blocks like cards (image ``i`` goes to block ``i % n``), so that each
    block has its share of every device's images and a batch-sharded array stays where it is.

    Args:
      solve: takes a tile ``[C, H, W * lanes]``, the static number of lanes, and values ``[lanes, ...]``; returns a tree
        of arrays ``[..., w * lanes]``.
      images: float ``[B, H, W, C]``.
      *per_image: values ``[B, ...]``.
      block_pixels: about how many pixels a block holds.
    """
    batch, height, width, _ = images.shape
    blocks = min(max(1, round(batch * height * width / block_pixels)), max(1, batch))
    lanes = max(1, min(_ROW // width, -(-batch // blocks)))
    tiles = -(-batch // (blocks * lanes))
    dealt = [_deal(values, tiles, lanes, blocks) for values in (images, *per_image)]

    def solve_tile(images: jax.Array, *per_image: jax.Array) -> Any:
        results = solve(grid.interleave(images), lanes, *per_image)
        return jax.tree.map(lambda a: grid.separate(a, lanes), results)

    def solve_block(block: list[jax.Array]) -> Any:
        return jax.vmap(solve_tile)(*block)

    if blocks == 1:
        results = jax.tree.map(lambda a: a[None], solve_block([values[0] for values in dealt]))
    else:
        results = jax.lax.map(solve_block, dealt)
    return jax.tree.map(lambda a: _collect(a, batch), results)


def _deal(values: jax.Array, tiles: int, lanes: int, blocks: int) -> jax.Array:
    """``[B, ...]`` to ``[blocks, tiles, lanes, ...]``, padded at the end with zeros."""
    padding = tiles * lanes * blocks - values.shape[0]
    padded = jnp.pad(values, [(0, padding)] + [(0, 0)] * (values.ndim - 1)) if padding else values
    return jnp.moveaxis(padded.reshape(tiles, lanes, blocks, *values.shape[1:]), 2, 0)


def _collect(results: jax.Array, batch: int) -> jax.Array:
    """``[blocks, tiles, lanes, ...]`` to ``[B, ...]``."""
    in_order = jnp.moveaxis(results, 0, 2)
    return in_order.reshape(math.prod(in_order.shape[:3]), *results.shape[3:])[:batch]
