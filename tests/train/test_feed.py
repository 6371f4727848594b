"""Sets that are streamed train as those in memory do."""

import itertools

import numpy as np
import pytest
from PIL import Image

from train import loop, methods, presets
from train.data.sources import open_source
from train.feed import open_feed
from train.sharding import Layout

SIZE = 16
STREAMED = {"image_size": SIZE, "batch_size": 8, "eval_batch_size": 8, "limit_train": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for split, kind, number in itertools.product(("train", "val"), ("ant", "bee"), range(12)):
        path = root / split / kind / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (*rng.integers(20, 30, 2), 3)
        Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(path)
    return root


def open_it(config):
    config = presets.fill(config)
    dataset = open_source(
        config.dataset, limit_train=config.limit_train, image_size=config.image_size
    )
    return open_feed(config, dataset, methods.build(config, 10), Layout())


@pytest.mark.parametrize("method", ["vanilla", "fix"])
def test_streams_continue_from_any_step(method, folder, tiny):
    feed = open_it(tiny(dataset=f"folder:{folder}", method=method, **STREAMED))
    assert feed.steps_per_epoch == 3
    batches = list(itertools.islice(feed.train_batches(0), 7))
    later = list(itertools.islice(feed.train_batches(4), 3))
    for one, other in zip(batches[4:], later, strict=True):
        assert one.keys() == other.keys()
        assert all((one[name] == other[name]).all() for name in one)
    assert ("down" in batches[0]) == (method == "fix")
    test = list(feed.test_batches())
    assert sum(int(batch["mask"].sum()) for batch in test) == 24
    assert "down" in test[0]


def test_codes_follow_their_pictures(folder, tiny):
    import jax.numpy as jnp

    import isvs

    feed = open_it(tiny(dataset=f"folder:{folder}", method="fix", **STREAMED))
    batch = next(feed.train_batches(0))
    space = isvs.encode(batch["image"].astype(jnp.float32) / 255)
    assert (batch["down"] == space.down).all() and (batch["right"] == space.right).all()


@pytest.mark.parametrize(("method", "workers"), [("iterative", 1), ("vanilla", 0)])
def test_streamed_sets_train(method, workers, folder, tiny, tmp_path):
    config = tiny(
        dataset=f"folder:{folder}",
        method=method,
        out=tmp_path,
        epochs=1,
        **{**STREAMED, "num_workers": workers},
    )
    summary = loop.run(config)
    assert summary["steps"] == 3 and summary["test_images"] == 24


def test_workers_mirror_pictures_only_if_asked(folder, tiny):
    options = {"dataset": f"folder:{folder}", "method": "vanilla", **STREAMED}

    def epoch(flip):
        batches = open_it(tiny(flip=flip, **options)).train_batches(0)
        return np.concatenate([batch["image"] for batch in itertools.islice(batches, 3)])

    plain, mirrored = epoch(False), epoch(True)
    same = (plain == mirrored).all((1, 2, 3))
    turned = (plain == mirrored[:, :, ::-1]).all((1, 2, 3))
    assert (same ^ turned).all() and same.any() and turned.any()


def test_states_per_image_need_images_in_memory(folder, tiny):
    with pytest.raises(ValueError, match="streamed; use --iterate path"):
        open_it(tiny(dataset=f"folder:{folder}", iterate="lbi", **STREAMED))
    with pytest.raises(ValueError, match=r"--method sat keeps .* streamed; use another method"):
        open_it(tiny(dataset=f"folder:{folder}", method="sat", **STREAMED))


def test_resident_batches_are_rows(tiny):
    feed = open_it(tiny(method="fix", limit_train=20, batch_size=8))
    assert feed.train["image"].dtype == np.uint8 and feed.train["down"].shape == (20, 31, 32)
    first = [batch["index"] for batch in itertools.islice(feed.train_batches(0), 4)]
    again = [batch["index"] for batch in itertools.islice(feed.train_batches(1), 3)]
    assert all((a == b).all() for a, b in zip(first[1:], again, strict=True))
