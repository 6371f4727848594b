"""The study of cleaning: the noise of the suites, chunks that continue, and rows on the same images."""

import json
import math
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import skimage.metrics

import isvs
from eval import preprocessing
from eval.cleaning import chunks, columns, fit, fit_auto, peers, preprocessings, table
from eval.cleaning.main import main
from eval.cleaning.network import Network
from eval.cleaning.options import AUTO, NAMES, STRENGTHS, NetworkOptions
from eval.corruptions import SEVERITIES
from eval.corruptions.constants import TABLES
from eval.options import Options
from eval.photographs import photographs
from eval.subject import open_subject
from eval.suites import corrupted
from eval.suites.base import Judge, pixels
from train.data.sources import open_source

LIMIT, CHUNK = 15, 5
ROWS = ("none", "paper", "tv", "median")


@pytest.fixture(scope="module")
def network(run):
    return ["--weights", str(run / "weights.safetensors"), "--model", "_tiny"]


@pytest.fixture(scope="module")
def make(network):
    """Runs the command `table`, and returns its rows by name, and all of table.json."""

    def command(out, *more, rows=ROWS, limit=LIMIT):
        sizes = ["--limit", limit, "--chunk", CHUNK, "--timed-images", 5, "--timed-peer-images", 2]
        options = [*sizes, "--dataset", "shapes", "--out", out, "--preprocess", *rows, *more]
        assert main(["table", *network, *map(str, options)]) == 0
        content = json.loads((out / "table.json").read_text())
        for row in content["rows"]:
            row.pop("images_per_second")
        return {row["name"]: row for row in content["rows"]}, content

    return command


def cheap_columns(images, rows):
    """Stands in for the benchmark's noise, which takes long to compile."""
    clean = images.astype(np.float32) / 255
    columns_ = {columns.CLEAN: clean}
    for number, name in enumerate(columns.BENCHMARK[1:], 1):
        noise = np.stack(
            [np.random.default_rng([number, r]).normal(size=clean[0].shape) for r in rows]
        )
        columns_[name] = np.clip(clean + 0.02 * number * noise, 0, 1).astype(np.float32)
    return {name: jnp.asarray(values) for name, values in columns_.items()}


@pytest.fixture(autouse=True, scope="module")
def cheap():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "benchmark", cheap_columns)
        yield


@pytest.fixture(scope="module")
def whole(make, tmp_path_factory):
    """A table from beginning to end: its folder and its rows."""
    folder = tmp_path_factory.mktemp("cleaning")
    return folder, make(folder)[0]


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of that folder, to be damaged."""
    return shutil.copytree(whole[0], tmp_path / "copy")


def few_shapes(path, count):
    """Writes so many training images, and returns the name of the data set that they are."""
    shapes = open_source("shapes", limit_train=count, limit_test=1)
    arrays = {"train_x": shapes.train.images, "train_y": shapes.train.labels}
    arrays |= {"test_x": shapes.test.images, "test_y": shapes.test.labels}
    np.savez(path, **arrays)
    return f"npz:{path}"


def lines_of(folder):
    return (folder / chunks.CHUNKS).read_text().splitlines()


def test_all_rows_of_a_chunk_come_before_the_next(whole):
    lines = [json.loads(line) for line in lines_of(whole[0])]
    found = [(line["start"], line["images"], line["preprocess"]) for line in lines]
    assert found == [(s, n, name) for s, n in ((0, 5), (5, 5), (10, 5)) for name in ROWS]


def test_every_image_is_in_one_chunk():
    test = open_source("shapes", limit_train=1, limit_test=7).test
    plan = chunks.plan(test, 3)
    assert [chunk.rows.tolist() for chunk in plan] == [[0, 1, 2], [3, 4, 5], [6]]
    for chunk in plan:
        np.testing.assert_array_equal(chunk.split.images, test.images[chunk.rows])
        np.testing.assert_array_equal(chunk.split.labels, test.labels[chunk.rows])


def test_a_cut_file_comes_to_the_same_table(whole, copied, make):
    folder, rows = whole
    path = copied / chunks.CHUNKS
    first, second, *_ = content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second + content[2][:50])
    assert make(copied)[0] == rows
    assert lines_of(copied) == lines_of(folder)


def test_what_is_there_is_not_measured_again(whole, copied, make):
    folder, rows = whole
    assert make(copied)[0] == rows
    assert lines_of(copied) == lines_of(folder)


def test_lines_with_another_digest_do_not_count(whole, copied, make):
    path = copied / chunks.CHUNKS
    line = json.loads(lines_of(copied)[0])
    assert line["preprocess"] == "none"
    wrong = {**line, "digest": "0" * 32, "right": dict.fromkeys(line["right"], 5)}
    path.write_text(json.dumps(wrong) + "\n" + path.read_text())
    assert make(copied, "--print-only")[0] == whole[1]


def test_another_strength_is_measured_anew(whole, copied, make, tmp_path):
    content = json.loads(STRENGTHS.read_text())
    content["peers"]["tv"]["chosen"] = {"weight": 0.5}
    (tmp_path / "other.json").write_text(json.dumps(content))
    rows, _ = make(copied, "--strengths", tmp_path / "other.json")
    before = lines_of(whole[0])
    assert lines_of(copied)[: len(before)] == before
    added = [json.loads(line) for line in lines_of(copied)[len(before) :]]
    assert {line["preprocess"] for line in added} == {"tv"} and len(added) == 3
    assert rows["tv"]["psnr"] != whole[1]["tv"]["psnr"]
    assert rows["median"] == whole[1]["median"]


def test_rows_of_different_times_are_shown_on_common_images(make, tmp_path):
    make(tmp_path, rows=("none",))
    both, content = make(tmp_path, rows=("median",), limit=5)
    assert both.keys() == {"none", "median"} and content["images"].startswith("5 of 5")
    both, content = make(tmp_path, "--print-only", rows=("none", "median"))
    assert both.keys() == {"none", "median"} and content["images"].startswith("5 of 15")
    alone, content = make(tmp_path, "--print-only", rows=("none",))
    assert alone.keys() == {"none"} and content["images"].startswith("15 of 15")


def test_nothing_to_show_is_an_error(network, tmp_path, capsys):
    options = ["--dataset", "shapes", "--limit", "8", "--out", str(tmp_path), "--print-only"]
    assert main(["table", *network, *options]) == 1
    assert "expected chunks that are done for every row shown, got none" in capsys.readouterr().err


def test_noise_and_answers_are_those_of_the_suite(run):
    options = Options(
        run=run, limit=16, corruptions=columns.NOISES, severities=(3,), preprocess=("none",)
    ).filled()
    subject = open_subject(options)
    rows = np.arange(8, 16, dtype=np.int32)  # another chunk than the first
    images, labels = (
        part[rows] for part in (subject.dataset.test.images, subject.dataset.test.labels)
    )
    batch = {"image": images, "label": labels, "index": rows}
    weights = NetworkOptions(weights=run / "weights.safetensors", model="_tiny", dataset="shapes")
    network = Network(weights, limit=1)

    class Recorder(Judge):
        """Keeps what the suite shows to the network."""

        def each(self, cells, keys, images, labels):
            self.images = images
            return super().each(cells, keys, images, labels)

    judge = Recorder(subject, draws=1)
    for task in corrupted.tasks(subject, options, judge):
        (right,) = task.measure({k: jnp.asarray(v) for k, v in batch.items()}, task.cells).values()
        ours = columns.noisy(pixels(jnp.asarray(images)), rows, task.cells[0].name, 3)
        np.testing.assert_array_equal(judge.images, ours)
        assert network.right_answers(ours, labels) == right.sum()


def test_decibels_are_those_of_scikit_image(whole):
    _, rows = whole
    images = open_source("shapes", limit_train=1, limit_test=LIMIT).test.images
    for name, noisy in cheap_columns(images, range(LIMIT)).items():
        if name != columns.CLEAN:
            pairs = zip(images / 255, np.asarray(noisy), strict=True)
            expected = np.mean(
                [skimage.metrics.peak_signal_noise_ratio(a, b, data_range=1) for a, b in pairs]
            )
            assert rows["none"]["psnr"][name] == pytest.approx(expected, abs=1e-3)


def test_rows_that_the_suites_have_too_are_the_same(monkeypatch):
    calls = []

    def record(images, sparsity, *, stiffness=math.inf, speckle=None):
        calls.append((isvs.AutoLevel() if sparsity == "auto" else sparsity, stiffness, speckle))
        return images

    monkeypatch.setattr(isvs, "smooth", record)
    images = jnp.zeros((1, 3, 7, 1))  # of a shape for which nothing is compiled yet
    for name in ("soft", "auto"):
        preprocessings.ours()[name](images)
        preprocessing.build(name, None)(images)
        ours, suites = calls[-2:]
        assert ours == suites


def row(name, *, accuracy, rate):
    return table.Row(
        name, dict.fromkeys(columns.BENCHMARK, accuracy), dict.fromkeys(columns.BENCHMARK, 20), rate
    )


def test_the_verdict_names_the_best_and_the_fast_ones_close_to_it():
    rows = [
        row("none", accuracy=50.0, rate=None),
        row("slow", accuracy=80.0, rate=10.0),
        row("quick", accuracy=76.0, rate=900.0),
        row("edge", accuracy=75.0, rate=20.0),
        row("poor", accuracy=74.0, rate=9000.0),
    ]
    best, close = table.verdict(rows)
    assert best == "Best by mean: slow (80.00 %)."
    assert [close.index(name) for name in ("quick", "edge", "slow")] == sorted(
        close.index(name) for name in ("quick", "edge", "slow")
    )
    assert "poor" not in close and "none" not in close
    *_, free = table.verdict([row("none", accuracy=78.0, rate=None), *rows[1:]])
    assert free.endswith("without a time: none.")


def test_means_are_over_their_columns():
    accuracy = {name: float(number) for number, name in enumerate(columns.BENCHMARK)}
    one = table.Row("x", accuracy, accuracy)
    assert one.mean == 7.5 and one.noisy_psnr == 8
    assert [one.mean_of(noise) for noise in columns.NOISES] == [3, 8, 13]
    text = table.markdown(
        [one], {"network": "n", "images": "i", "timing": "t", "definitions": {"x": "y"}}
    )
    assert "3.00 (1.0 / 2.0 / 3.0 / 4.0 / 5.0)" in text


def test_the_strengths_are_the_best_of_those_tried():
    found = json.loads(STRENGTHS.read_text())["peers"]
    assert found.keys() == peers.PEERS.keys()
    for name, peer in found.items():
        assert [one["strength"] for one in peer["tried"]] == list(peers.PEERS[name].settings)
        best = max(peer["tried"], key=lambda one: one["score"])
        assert peer["chosen"] == best["strength"]
        for one in peer["tried"]:
            assert one["score"] == pytest.approx(np.mean(list(one["accuracy"].values())), abs=1e-3)
    assert tuple(preprocessings.preprocessings(STRENGTHS)) == NAMES


def test_the_automatic_level_has_the_constants_that_were_fitted():
    found = json.loads(AUTO.read_text())
    chosen, policy = found["chosen"], isvs.AutoLevel()
    assert {name: getattr(policy, name) for name in fit_auto.FITTED} == chosen
    pairs, colours = (found["without_speckle"][kind] for kind in ("pairs", "colours"))
    outliers = found["with_speckle"]["outliers"]
    strength = [(one["stiffness"], one["contrast"]) for one in pairs]
    assert strength == sorted(strength) and len(set(strength)) == len(strength) > 1
    for tried, names in (
        (pairs, ("contrast", "stiffness")),
        (colours, ("colour",)),
        (outliers, ("outlier",)),
    ):
        first = tried[fit_auto.first_alike(tried)]
        for name in names:
            assert first[name] == chosen[name]
            # A best one at the border of what was tried would say that too little was.
            values = {one[name] for one in tried}
            assert min(values) < chosen[name] < max(values)


def test_what_the_library_has_by_default_does_not_guide_the_fit(network, tmp_path, monkeypatch):
    few = few_shapes(tmp_path / "few.npz", 8)
    tried = []

    def judge(*arguments):
        policy = arguments[4].sparsity
        if isinstance(policy, isvs.AutoLevel):
            tried.append(policy)
        return {"score": float(len(tried)), "accuracy": {}}

    monkeypatch.setattr(fit_auto, "score", judge)
    out = tmp_path / "auto.json"
    options = ["--dataset", few, "--limit", "8", "--out", str(out)]
    assert main(["fit-auto", *network, *options]) == 0
    pairs = tried[: len(fit_auto.CONTRASTS) * len(fit_auto.STIFFNESSES)]
    colours = tried[len(pairs) :][: len(fit_auto.COLOURS)]
    outliers = tried[len(pairs) + len(colours) :]
    assert all(policy.speckle is None for policy in pairs + colours)  # `outlier` has no part
    assert {policy.colour for policy in pairs} == {1.0}
    assert [policy.colour for policy in colours] == [*fit_auto.COLOURS]
    assert [policy.outlier for policy in outliers] == [*fit_auto.OUTLIERS]
    assert json.loads(out.read_text())["chosen"] == {
        "contrast": pairs[-1].contrast,
        "stiffness": pairs[-1].stiffness,
        "colour": fit_auto.COLOURS[-1],
        "quiet": pairs[0].quiet,
        "quiet_grey": pairs[0].quiet_grey,
        "outlier": fit_auto.OUTLIERS[-1],
    }


@pytest.mark.parametrize(("scores", "chosen"), [((70, 79.4, 79.6, 80), 2), ((80, 79.6), 0)])
def test_of_settings_alike_the_first_is_chosen(scores, chosen):
    assert fit_auto.first_alike([{"score": score} for score in scores]) == chosen


@pytest.mark.parametrize("text", ["{", "[]", '{"peers": {"tv": {"chosen": {}}}}'])
def test_other_files_of_strengths_are_refused(text, tmp_path):
    path = tmp_path / "strengths.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"strengths\.json: expected the"):
        preprocessings.peers(path)


def test_fitting_takes_training_images_and_its_own_noise(network, tmp_path, monkeypatch):
    few = few_shapes(tmp_path / "few.npz", 24)
    monkeypatch.setitem(peers.PEERS, "tv", _with_settings("tv", {"weight": 1e-9}, {"weight": 9.0}))
    for name in ("nl_means", "wavelet", "bilateral"):
        monkeypatch.delitem(peers.PEERS, name)
    monkeypatch.setitem(columns.FITTING, "gaussian_noise", (0.05,))
    for name in ("shot_noise", "impulse_noise"):
        monkeypatch.delitem(columns.FITTING, name)
    options = ["--dataset", few, "--limit", 12, "--batch-size", 6]
    out = tmp_path / "strengths.json"
    assert main(["fit-peers", *network, *map(str, options), "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    assert content["how"]["images"].startswith("the last 12 of 24 training images")
    untouched, flat = content["peers"]["tv"]["tried"]
    # The weakest does nothing, and the strongest leaves one colour.
    assert untouched["accuracy"] == content["none"]["accuracy"] != flat["accuracy"]


def test_fitting_has_no_strength_of_the_benchmark():
    assert columns.FITTING.keys() == set(columns.NOISES)
    for name, strengths in columns.FITTING.items():
        assert strengths and not set(strengths) & set(TABLES["cifar"][name])


def _with_settings(name, *settings):
    return peers.Peer(peers.PEERS[name].denoise, settings)


def test_the_best_score_is_chosen_and_of_equals_the_weaker():
    tried = [{"strength": {"h": h}, "score": score} for h, score in ((1, 5), (2, 7), (3, 7))]
    assert fit._choose(tried)["chosen"] == {"h": 2}


@pytest.mark.parametrize("name", peers.PEERS)
def test_peers_remove_noise_and_bear_flat_images(name):
    clean = photographs(4, 32)
    noisy = np.clip(clean + np.random.default_rng(0).normal(scale=0.1, size=clean.shape), 0, 1)
    setting = preprocessings.peers(STRENGTHS)[name].setting
    cleaned = peers.denoise(name, setting, noisy.astype(np.float32))
    assert cleaned.dtype == np.float32 and cleaned.min() >= 0 and cleaned.max() <= 1
    assert np.square(cleaned - clean).mean() < np.square(noisy - clean).mean()
    for value in (0.0, 0.5, 1.0):
        flat = np.full((1, 32, 32, 3), value, np.float32)
        np.testing.assert_allclose(peers.denoise(name, setting, flat), flat, atol=1e-6)
    grey = noisy[..., :1].astype(np.float32)
    assert peers.denoise(name, setting, grey).shape == grey.shape


def test_constants_are_fitted_on_colour_images(network, tmp_path, monkeypatch, capsys):
    grey = open_source("shapes", limit_train=8, limit_test=1)
    arrays = {
        f"{split}_{kind}": values
        for split, part in (("train", grey.train), ("test", grey.test))
        for kind, values in (("x", part.images[..., :1]), ("y", part.labels))
    }
    np.savez(tmp_path / "grey.npz", **arrays)
    monkeypatch.setattr(fit_auto, "Network", lambda options, limit: None)
    options = ["--dataset", f"npz:{tmp_path / 'grey.npz'}", "--out", str(tmp_path / "auto.json")]
    assert main(["fit-auto", *network, *options]) == 1
    assert "expected colour images, got 1 channel" in capsys.readouterr().err


def test_work_is_begun_one_ahead_and_handed_out_in_order():
    log = []

    def start(number):
        log.append(("begun", number))
        return lambda: number

    starts = (lambda number=number: start(number) for number in range(3))
    for number in preprocessings.one_ahead(starts):
        log.append(("done", number))
    assert log == [
        *(("begun", 0), ("begun", 1), ("done", 0), ("begun", 2), ("done", 1), ("done", 2)),
    ]


def test_every_severity_is_a_column():
    assert len(columns.BENCHMARK) == 1 + len(columns.NOISES) * len(SEVERITIES) == 16
