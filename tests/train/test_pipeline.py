import itertools

import numpy as np
import pytest
from PIL import Image

from train.data.crops import CentreCrop, RandomResizedCrop, random_box
from train.data.dataset import ArraySplit
from train.data.folder import FolderSplit
from train.data.order import (
    epoch_permutation,
    eval_indices,
    host_slice,
    steps_per_epoch,
    train_indices,
)
from train.data.pipeline import TrainStream, eval_stream

ROWS, SIZE, BATCH = 22, 16, 4


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """22 noisy pictures of all shapes in two class folders."""
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(ROWS):
        path = root / ("ant" if i < ROWS // 2 else "bee") / f"{i:02d}.png"
        path.parent.mkdir(exist_ok=True)
        shape = (*rng.integers(18, 40, 2), 3)
        Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(path)
    return FolderSplit(root, ("ant", "bee"), limit=None)


def stream(split, **options):
    return TrainStream(split, **{"image_size": SIZE, "batch_size": BATCH, "seed": 5} | options)


def take(batches, count):
    return list(itertools.islice(batches, count))


def assert_same(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert one.keys() == other.keys()
        assert all((one[key] == other[key]).all() for key in one)


def join_hosts(parts):
    """Batches of all hosts, put together again."""
    return [
        {key: np.concatenate([part[key] for part in step]) for key in step[0]}
        for step in zip(*parts, strict=True)
    ]


def test_permutation_is_a_pure_function():
    order = epoch_permutation(3, 7, 1000)
    assert order.dtype == np.int32 and sorted(order) == list(range(1000))
    assert (order == epoch_permutation(3, 7, 1000)).all()
    assert (order != epoch_permutation(3, 8, 1000)).any()
    assert (order != epoch_permutation(4, 7, 1000)).any()
    # Fixed for all versions of NumPy: an old run must continue with the order it began with.
    assert epoch_permutation(0, 0, 8).tolist() == [3, 2, 1, 6, 0, 7, 4, 5]


def test_permutations_are_unbiased():
    first = [epoch_permutation(0, epoch, 5)[0] for epoch in range(2000)]
    counts = np.bincount(first, minlength=5)
    assert (np.abs(counts - 400) < 90).all()  # five standard deviations


def test_training_drops_the_incomplete_batch():
    rows = train_indices(0, 0, 22, 4)
    assert rows.shape == (5, 4) == (steps_per_epoch(22, 4), 4)
    assert len(set(rows.ravel().tolist())) == 20
    seen = {int(i) for epoch in range(20) for i in train_indices(0, epoch, 22, 4).ravel()}
    assert seen == set(range(22))  # over the epochs, none is left out
    with pytest.raises(ValueError, match="expected 1 to 22, the training images, got 23"):
        train_indices(0, 0, 22, 23)


@pytest.mark.parametrize(("n", "batch_size"), [(1, 1), (7, 4), (8, 4), (3, 10)])
def test_eval_counts_every_row_once(n, batch_size):
    rows, mask = eval_indices(n, batch_size)
    assert rows.shape == mask.shape == (-(-n // batch_size), batch_size)
    assert rows[mask].tolist() == list(range(n))
    assert (rows[~mask] == 0).all()


def test_host_slices_tile_the_batch():
    slices = [host_slice(12, i, 3) for i in range(3)]
    assert np.concatenate([np.arange(12)[s] for s in slices]).tolist() == list(range(12))
    with pytest.raises(ValueError, match="multiple of the 5 hosts, got 12"):
        host_slice(12, 0, 5)
    with pytest.raises(ValueError, match="process_index=3"):
        host_slice(12, 3, 3)


def test_stream_follows_the_order_and_keeps_labels(split):
    with stream(split) as batches:
        taken = take(batches, 7)  # into the second epoch
    expected = np.concatenate([train_indices(5, epoch, ROWS, BATCH) for epoch in (0, 1)])
    for batch, rows in zip(taken, expected, strict=False):
        assert batch["image"].shape == (BATCH, SIZE, SIZE, 3)
        assert [batch[key].dtype for key in ("image", "label", "index", "mask")] == [
            np.uint8,
            np.int32,
            np.int32,
            np.bool_,
        ]
        assert (batch["index"] == rows).all() and batch["mask"].all()
        assert (batch["label"] == split.labels[rows]).all()


def test_resumed_stream_continues_as_if_nothing_happened(split):
    with stream(split) as batches:
        take(batches, 3)
        state = batches.get_state()
        following = take(batches, 5)  # across the end of the epoch
        batches.set_state(state)
        assert_same(take(batches, 5), following)
    assert all(isinstance(value, int) for value in state.values())
    with stream(split) as fresh:
        fresh.set_state(state)
        assert fresh.get_state() == state
        assert_same(take(fresh, 5), following)


def test_state_of_another_run_is_refused(split):
    state = stream(split).get_state()
    for change in ({"seed": 6}, {"batch_size": 2}):
        with pytest.raises(ValueError, match="state: expected"):
            stream(split, **change).set_state(state)


def test_hosts_share_out_the_same_batches(split):
    with stream(split) as single:
        whole = take(single, 6)
    parts = []
    for host in range(2):
        with stream(split, process_index=host, process_count=2) as batches:
            parts.append(take(batches, 6))
    assert_same(join_hosts(parts), whole)


def test_worker_processes_change_nothing(split):
    with stream(split) as alone:
        whole = take(alone, 7)
    with stream(split, num_workers=2) as batches:
        assert_same(take(batches, 3), whole[:3])
        state = batches.get_state()
    with stream(split, num_workers=1) as batches:  # as many workers as one likes
        batches.set_state(state)
        assert_same(take(batches, 4), whole[3:])


def test_worker_names_the_corrupt_picture(split, tmp_path):
    (tmp_path / "ant").mkdir()
    (tmp_path / "ant" / "broken.jpg").write_bytes(b"not a picture")
    broken = FolderSplit(tmp_path, ("ant",), limit=None)
    with (
        stream(broken, batch_size=1, num_workers=1) as batches,
        pytest.raises(ValueError, match=r"broken.jpg: cannot decode"),
    ):
        next(batches)


def test_eval_stream_is_fixed_and_padded(split):
    def run(**options):
        return list(eval_stream(split, image_size=SIZE, batch_size=BATCH, **options))

    batches = run()
    rows, mask = eval_indices(ROWS, BATCH)
    assert_same(run(), batches)
    assert (np.stack([b["index"] for b in batches]) == rows).all()
    assert (np.stack([b["mask"] for b in batches]) == mask).all()
    parts = [run(process_index=host, process_count=2) for host in range(2)]
    assert_same(join_hosts(parts), batches)
    expected = CentreCrop(SIZE)(split[6])["image"]
    assert (batches[1]["image"][2] == expected).all()


def test_transform_may_add_keys():
    images = np.arange(8, dtype=np.uint8)[:, None, None, None].repeat(3, axis=-1)
    held = ArraySplit(images, np.zeros(8, np.int32))

    def transform(record, rng):
        return {**record, "codes": np.full(3, record["index"], np.uint16)}

    with stream(held, transform=transform) as batches:
        batch = next(batches)
    assert (batch["codes"] == batch["index"][:, None]).all()
    assert batch["codes"].dtype == np.uint16


def test_crops_differ_between_epochs_but_not_between_orders(split):
    """The crop belongs to (seed, epoch, picture), whatever the batch it comes in."""

    def by_index(batch_size, skip):
        with stream(split, batch_size=batch_size) as batches:
            taken = take(batches, skip + ROWS // batch_size)[skip:]
        return {int(i): x for b in taken for i, x in zip(b["index"], b["image"], strict=True)}

    first, second = by_index(11, skip=0), by_index(11, skip=2)
    assert all((first[i] == image).all() for i, image in by_index(2, skip=0).items())
    assert sum((first[i] == second[i]).all() for i in first) <= 1


def test_random_box_stays_inside_and_varies():
    rng = np.random.default_rng(0)
    parts, ratios = [], []
    for _ in range(2000):
        left, top, right, bottom = random_box(rng, 300, 400)
        assert 0 <= left < right <= 400 and 0 <= top < bottom <= 300
        parts.append((right - left) * (bottom - top) / (300 * 400))
        ratios.append((right - left) / (bottom - top))
    assert 0.07 < min(parts) < 0.12 and 0.9 < max(parts) <= 1
    assert 0.73 < min(ratios) < 0.78 and 1.28 < max(ratios) < 1.36


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 500), (500, 1), (3, 2)])
def test_odd_pictures_are_cropped_too(height, width):
    record = {"image": np.full((height, width, 3), 9, np.uint8), "label": 0, "index": 0}
    for _ in range(20):
        rng = np.random.default_rng(0)
        assert (RandomResizedCrop(8)(record, rng)["image"] == np.full((8, 8, 3), 9)).all()
    assert (CentreCrop(8)(record)["image"] == np.full((8, 8, 3), 9)).all()


def test_centre_crop_is_central_and_keeps_proportion():
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None, None], (256, 300, 3))
    image = CentreCrop(224)({"image": np.ascontiguousarray(ramp), "label": 0, "index": 0})["image"]
    assert image.shape == (224, 224, 3)
    assert (image[:, :, 0] == np.arange(16, 240)[:, None]).all()  # short side 256: not resized


def test_training_crops_are_flipped_half_of_the_time():
    ramp = np.broadcast_to(np.arange(64, dtype=np.uint8)[None, :, None], (64, 64, 3))
    record = {"image": np.ascontiguousarray(ramp), "label": 0, "index": 0}
    falling = 0
    for seed in range(200):
        row = RandomResizedCrop(8)(record, np.random.default_rng(seed))["image"][0, :, 0]
        falling += int(row[0]) > int(row[-1])
    assert 70 < falling < 130
