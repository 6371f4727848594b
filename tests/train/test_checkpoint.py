import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train.checkpoint import Checkpoints
from train.state import TrainState


def make(step):
    return TrainState(
        step=jnp.asarray(step, jnp.int32),
        params={"a.b": jnp.arange(1000.0) + step, "half": jnp.ones(3, jnp.bfloat16)},
        stats={"mean": jnp.full((3,), float(step))},
        opt_state=(jnp.zeros((), jnp.int32), {"trace": jnp.ones((2, 2)) * step}),
        average=None,
        key=jax.random.key(step),
        method={"codes": jnp.arange(5, dtype=jnp.uint8)},
    )


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert a.dtype == b.dtype and (np.asarray(a) == np.asarray(b)).all()


@pytest.fixture
def checkpoints(tmp_path):
    with contextlib.closing(Checkpoints(tmp_path)) as opened:
        yield opened


def test_round_trip(checkpoints):
    assert checkpoints.restore(make(0)) is None
    for step in (1, 2, 3):
        checkpoints.save(step, make(step))
    assert_same(checkpoints.restore(make(0)), make(3))
    assert checkpoints.steps == [2, 3]  # the latest and the one before


def test_a_state_given_away_after_saving_stays_whole(checkpoints):
    state = make(4)
    checkpoints.save(4, state)
    overwrite = jax.jit(lambda a: a * 0 - 1, donate_argnums=0)
    overwrite(state.params["a.b"])
    assert_same(checkpoints.restore(make(0)), make(4))


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_latest_falls_back(damage, tmp_path, capsys):
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        checkpoints.save(1, make(1))
        checkpoints.save(2, make(2))
        checkpoints.wait()
    latest = tmp_path / "checkpoints" / "latest" / "2" / "state"
    data = sorted((p for p in latest.rglob("d/*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(data[-1].read_bytes())
    content[len(content) // 2] ^= 16
    if damage == "remove":
        data[-1].unlink()
    else:
        data[-1].write_bytes(content if damage == "flip" else content[: len(content) // 2])
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        assert_same(checkpoints.restore(make(0)), make(1))
        text = capsys.readouterr().err
        assert "warning: the checkpoint of step 2 is damaged" in text
        checkpoints.save(2, make(2))  # the place is free again
        assert_same(checkpoints.restore(make(0)), make(2))


def test_the_checksum_finds_what_the_format_does_not(tmp_path, monkeypatch, capsys):
    from train import checkpoint

    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        checkpoints.save(1, make(1))
        real = checkpoint._checksum
        monkeypatch.setattr(checkpoint, "_checksum", lambda arrays: real(arrays) + jnp.uint32(1))
        checkpoints.save(2, make(2))
        monkeypatch.setattr(checkpoint, "_checksum", real)
        assert_same(checkpoints.restore(make(0)), make(1))
    assert "its checksum does not hold" in capsys.readouterr().err


def test_best_weights_are_kept(checkpoints):
    for step, accuracy in ((1, 0.5), (2, 0.9), (3, 0.7)):
        checkpoints.save_best(step, {"w": jnp.full((2,), float(step))}, accuracy)
    assert checkpoints.best_accuracy == 0.9
    assert checkpoints.restore_best({"w": jnp.zeros(2)})["w"].tolist() == [2, 2]
