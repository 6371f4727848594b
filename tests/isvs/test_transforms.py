"""The public functions under JAX's transformations, sharded, and lowered for other platforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import isvs

FUNCTIONS = {
    "smooth": lambda x: isvs.smooth(x, 0.6),
    "encode": lambda x: isvs.encode(x),
    "at": lambda x: isvs.encode(x).at(0.3),
    "gradient": jax.grad(lambda x: jnp.sum(isvs.smooth(x, 0.5) ** 2)),
    "lbi": lambda x: isvs.smooth(x, 0.4, solver=isvs.LBI(max_steps=1500)),
}


@pytest.fixture(scope="module")
def images(colour_photographs):
    return jnp.asarray(
        np.concatenate([colour_photographs, colour_photographs[:, ::-1]])[:, 4:20, 8:24]
    )


def assert_same(a, b):
    """Equal up to a few edges whose entry times differ by rounding."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        difference = np.abs(np.asarray(x, np.float32) - np.asarray(y, np.float32))
        limit = 1 if x.dtype == jnp.uint8 else 1e-4
        assert np.mean(difference > limit) < 2e-3


def batch_mesh(axis_type):
    return jax.make_mesh((8,), ("batch",), axis_types=(axis_type,))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jit_eager_vmap_and_shards_agree(images, name):
    function = FUNCTIONS[name]
    plain = function(images)
    assert_same(jax.jit(function)(images), plain)
    assert_same(jax.vmap(function)(images), plain)
    spread = jax.device_put(
        images, NamedSharding(batch_mesh(AxisType.Auto), PartitionSpec("batch"))
    )
    result = jax.jit(function)(spread)
    assert_same(result, plain)
    assert all(len(leaf.sharding.device_set) == 8 for leaf in jax.tree.leaves(result))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_explicit_axes(images, name):
    function = FUNCTIONS[name]
    mesh = batch_mesh(AxisType.Explicit)
    with jax.set_mesh(mesh):
        spread = jax.device_put(images, NamedSharding(mesh, PartitionSpec("batch")))
        result = jax.jit(function)(spread)
    assert_same(result, function(images))
    for leaf in jax.tree.leaves(result):
        assert leaf.sharding.spec[0] == "batch"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shard_map(images, name):
    function = FUNCTIONS[name]
    mesh = batch_mesh(AxisType.Auto)
    split = jax.shard_map(
        function, mesh=mesh, in_specs=PartitionSpec("batch"), out_specs=PartitionSpec("batch")
    )
    assert_same(jax.jit(split)(images), function(images))


def test_the_solver_needs_no_communication(images):
    spread = jax.device_put(
        images, NamedSharding(batch_mesh(AxisType.Auto), PartitionSpec("batch"))
    )
    text = jax.jit(isvs.encode).lower(spread).compile().as_text()
    assert "all-gather" not in text
    assert "all-to-all" not in text


def test_one_trace_for_many_levels(images):
    traces = 0

    @jax.jit
    def step(x, level):
        nonlocal traces
        traces += 1
        return isvs.smooth(x, level)

    results = [step(images, level) for level in (0.2, 0.5, 0.9)]
    assert traces == 1
    assert float(jnp.abs(results[0] - results[2]).max()) > 0.01
    step(images, jnp.linspace(0.1, 0.9, 16))
    assert traces == 2  # a level for each image has another shape


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize("name", ["smooth", "encode", "at", "gradient"])
def test_lowers_for_every_platform(name, platform):
    exported = jax.export.export(jax.jit(FUNCTIONS[name]), platforms=[platform])(
        jax.ShapeDtypeStruct((4, 16, 16, 3), jnp.float32)
    )
    text = exported.mlir_module()
    assert "callback" not in text
    assert "stablehlo.while" in text


def test_labels_need_no_gather_on_tpu():
    def labels(down, right):
        return isvs.connected_components(down, right)

    shapes = (
        jax.ShapeDtypeStruct((2, 15, 16), jnp.bool_),
        jax.ShapeDtypeStruct((2, 16, 15), jnp.bool_),
    )
    texts = {
        platform: jax.export.export(jax.jit(labels), platforms=[platform])(*shapes).mlir_module()
        for platform in ("tpu", "cuda")
    }
    assert "stablehlo.scatter" not in texts["tpu"]
    assert "stablehlo.gather" not in texts["tpu"]
    assert "stablehlo.scatter" in texts["cuda"]


def test_scale_space_is_a_pytree(images):
    space = isvs.encode(images[:3])
    assert len(jax.tree.leaves(space)) == 3
    one = jax.tree.map(lambda a: a[1], space)
    np.testing.assert_allclose(one.at(0.5), space.at(0.5)[1], atol=1e-6)
    mapped = jax.vmap(lambda s, level: s.at(level))(space, jnp.array([0.2, 0.5, 0.8]))
    np.testing.assert_allclose(mapped, space.at(jnp.array([0.2, 0.5, 0.8])), atol=1e-6)


def test_solvers_are_static_arguments():
    assert hash(isvs.Flow()) == hash(isvs.Flow())
    assert isvs.LBI(kappa=3.0) == isvs.LBI(kappa=3.0) != isvs.LBI()
    smooth = jax.jit(isvs.smooth, static_argnames=("solver", "gradient"))
    assert smooth(jnp.zeros((4, 4, 1)), 0.5, solver=isvs.Flow(ratio=1.2)).shape == (4, 4, 1)
