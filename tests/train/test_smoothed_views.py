"""Stiffness and speckle in what `fix` and `iterative` show, and in the runs that have them."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvs
from train import codes, feed, loop, methods, presets, run_folder
from train.config import Config
from train.data.sources import open_source
from train.sharding import Layout

SIDE, STEPS, LEVEL = 8, 10, 0.4
GIVEN = {"stiffness": 5.0, "speckle_area": 1, "speckle_contrast": 0.2}
STIFFNESS, SPECKLE = 5.0, isvs.Speckle(1, 0.2)
# Two steps, and no noise in the closing table: it would need programs of its own.
SMALL = {"eval_batch_size": 16, "epochs": 1, "noise": 0.0}


def build(**options):
    config = presets.fill(Config(epochs=STEPS, sparsity=LEVEL, **options))
    return methods.build(config, steps_per_epoch=1)


@pytest.fixture(scope="module")
def batch():
    """Ramps with some noise, and in each a spot of one pixel that stands out; with their codes."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(0.2, 0.6, SIDE)[None, :, None, None]
    images = ramp + rng.uniform(-0.05, 0.05, (4, SIDE, SIDE, 3))
    images[:, 3, 4] = 1.0
    space = jax.jit(isvs.encode)(jnp.asarray(images, jnp.float32))
    return {"image": space.images, "down": space.down, "right": space.right}


@pytest.fixture(scope="module")
def expected(batch):
    """What the library makes of the images, with a gradient; all of it compiled together."""
    weights = jax.random.normal(jax.random.key(1), batch["image"].shape)

    def smooth(images):
        return isvs.smooth(images, LEVEL, stiffness=STIFFNESS, speckle=SPECKLE)

    @jax.jit
    def compute(images, down, right):
        space = isvs.ScaleSpace(images, down, right)
        kept_support = isvs.ScaleSpace(isvs.remove_speckle(images, SPECKLE), down, right)
        both, pull = jax.vjp(smooth, images)
        return {
            "paper": space.at(LEVEL),
            "soft": isvs.smooth(images, LEVEL, stiffness=STIFFNESS),
            "both": both,
            "gradient": pull(weights)[0],
            "first_view": kept_support.at(0.2, stiffness=STIFFNESS),
            "last_view": kept_support.at(LEVEL, stiffness=STIFFNESS),
        }

    found = compute(batch["image"], batch["down"], batch["right"])
    return SimpleNamespace(weights=weights, **found)


def apart(images, others):
    return float(jnp.abs(images - others).max())


def view(method, batch, *steps):
    state = method.init(methods.Spec(4, 4, (SIDE, SIDE, 3)))
    show = jax.jit(lambda b, n: method.view(state, jax.random.key(0), n, b, None)[0])
    return [show(batch, jnp.int32(step)) for step in steps]


@pytest.mark.parametrize("over", [{}, {"method": "noise", "view": "fix"}], ids=["fix", "noise"])
def test_stiffness_is_that_of_the_library(over, batch, expected):
    method = build(**{"method": "fix", **over}, stiffness=STIFFNESS)
    for ours in (*view(method, batch, 0), method.preprocess(batch)):
        np.testing.assert_allclose(ours, expected.soft, atol=1e-6)
    assert apart(expected.soft, expected.paper) > 0.05


def test_speckle_is_gone_from_views_and_test_images(batch, expected):
    """Views keep the support of the stored codes; test images are the library's, codes or not."""
    method = build(**GIVEN, sparsity_from=0.2)
    first, last = view(method, batch, 0, STEPS - 1)
    np.testing.assert_allclose(first, expected.first_view, atol=1e-6)
    np.testing.assert_allclose(last, expected.last_view, atol=1e-6)
    assert method.train_codes and not method.test_codes
    np.testing.assert_allclose(jax.jit(method.preprocess)(batch), expected.both, atol=1e-6)
    # The spot takes edges of the support where it is removed later; where it stays, it shows.
    assert 0.01 < apart(last, expected.both) < 0.1
    assert min(apart(one, expected.soft) for one in (last, expected.both)) > 0.1


def test_attacks_through_the_smoothing_have_its_exact_gradient(batch, expected):
    options = {"method": "adversarial", "view": "fix", "attack_through": "smoothing"}
    method = build(**options, **GIVEN)

    @jax.jit
    def seen(images):
        shown, pull = jax.vjp(lambda x: method.seen(jnp.int32(0), x), images)
        return shown, pull(expected.weights)[0]

    shown, gradient = seen(batch["image"])
    np.testing.assert_allclose(shown, expected.both, atol=1e-6)
    np.testing.assert_allclose(gradient, expected.gradient, atol=1e-5)
    # What is removed has no influence; what is beside it has.
    assert not gradient[:, 3, 4].any() and gradient[:, 3, 3].all()


@pytest.fixture(scope="module")
def small(tiny, tmp_path_factory):
    """Configurations of runs on few small images, whose codes a run with neither option has made."""
    folder = tmp_path_factory.mktemp("small")
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 32), ("test", 16)):
        arrays[f"{split}_x"] = rng.integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)
        arrays[f"{split}_y"] = np.arange(count) % 4
    np.savez(folder / "data.npz", **arrays)
    files = {"dataset": f"npz:{folder / 'data.npz'}", "cache_dir": folder / "codes"}
    config = presets.fill(tiny(method="fix", **files, **SMALL))
    feed.open_feed(config, open_source(config.dataset), methods.build(config, 1), Layout())
    return lambda **options: tiny(**files, **SMALL, **options)


@pytest.mark.parametrize("name", ["fix", "iterative"])
def test_runs_share_their_codes_whatever_they_show(name, small, tmp_path, monkeypatch):
    monkeypatch.setattr(codes, "_Encoder", None)  # would fail if called
    config = small(out=tmp_path, method=name, **GIVEN)
    summary = loop.run(config)
    assert summary["steps"] == 2 and 0 <= summary["clean"]["smoothed"] <= 1
    assert len(list(config.cache_dir.iterdir())) == 2  # of training images, and of test images
    # An evaluation reads this file, and prepares test images in the same way.
    text = (tmp_path / "config.json").read_text()
    values = json.loads(text, parse_constant=pytest.fail)
    assert {option: values[option] for option in GIVEN} == GIVEN
    read = methods.build(Config.from_json(text), steps_per_epoch=1)
    assert (read.stiffness, read.speckle) == (STIFFNESS, SPECKLE)


def test_runs_from_before_these_options_go_on(tmp_path):
    config = presets.fill(Config(method="fix"))
    run_folder.claim(tmp_path, config, "data")
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    for name in GIVEN:
        assert values.pop(name) is None
    file.write_text(json.dumps(values))
    run_folder.check_config(tmp_path, config)
    with pytest.raises(ValueError, match=r"--stiffness: was None, now 5\.0"):
        run_folder.check_config(tmp_path, presets.fill(Config(method="fix", stiffness=5.0)))
