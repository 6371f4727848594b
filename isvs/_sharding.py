"""Explicitly sharded arrays: the solvers leave the sharding of what is inside to the compiler."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def batchwise(
    function: Callable[..., Any],
    *arguments: jax.Array,
    trailing: int,
    results: Sequence[Any],
    leading: int = 0,
) -> Any:
    """Calls a function of a batch, on mesh axes that the compiler handles.

    A mesh made by `jax.make_mesh` has explicit axes by default: array types then carry their sharding, and reshapes and
    loop carries must spell it out. The work here is the same for every image, so inside the function the compiler may
    see to it; the results come back sharded over the batch like the first argument.

    Args:
      function: what to call.
      *arguments: arrays; the first one's batch axes say how the results are sharded.
      trailing: how many axes of the first argument come after its batch axes.
      results: for each result, how many axes it has after the batch axes.
      leading: how many axes the results have before the batch axes.
    """
    sharding = jax.typeof(arguments[0]).sharding
    if AxisType.Explicit not in sharding.mesh.axis_types:
        return function(*arguments)
    batch = sharding.spec[: arguments[0].ndim - trailing]

    def out(axes: int) -> NamedSharding:
        spec = PartitionSpec(*[None] * leading, *batch, *[None] * axes)
        return NamedSharding(sharding.mesh, spec)

    shardings = tuple(out(axes) for axes in results)
    return jax.sharding.auto_axes(
        function, out_sharding=shardings if len(shardings) > 1 else shardings[0]
    )(*arguments)
