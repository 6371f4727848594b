"""Eight host devices in every test process, for those that shard; and programs that are compiled once."""

import os

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import jax
import pytest


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    """Folders that the tests of a process share: compiled programs and codes."""
    # Not with other test processes: JAX does not write its cache so that another may read meanwhile.
    return {name: tmp_path_factory.mktemp(name) for name in ("compiled", "codes")}


@pytest.fixture(autouse=True, scope="session")
def compile_once(caches):
    jax.config.update("jax_compilation_cache_dir", str(caches["compiled"]))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    yield
    jax.config.update("jax_compilation_cache_dir", None)
