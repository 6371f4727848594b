"""The benchmark's peers compute what they claim to, and its command prints a table and writes JSON."""

import json
import math

import numpy as np
import pytest

from eval import bench, bench_components, bench_denoisers, peers
from eval.bench_encode import advance_lbi
from eval.bench_table import Row, at_least, at_most, format_table, write_json
from eval.compiled_lbi import CompiledLBI, NoCompilerError, build_loop
from eval.photographs import photographs
from eval.timing import Measured, in_turn, summarise

STEPS = 600
SHAPES = [(9, 13, 3), (12, 7, 1), (8, 16, 3), (1, 20, 2)]


def literal_lbi(image: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The iteration as it stands in the paper, in float64, with the differences as a dense matrix.

    Returns `u` and, for each edge down and right, whether it is in the support.
    """
    height, width, channels = image.shape
    index = np.arange(height * width).reshape(height, width)
    pairs = [*zip(index[:-1].flat, index[1:].flat, strict=True)]
    pairs += zip(index[:, :-1].flat, index[:, 1:].flat, strict=True)
    differences = np.zeros((len(pairs), height * width))
    for edge, (first, second) in enumerate(pairs):
        differences[edge, first], differences[edge, second] = -1, 1
    x = image.reshape(-1, channels).astype(np.float64)
    s = np.linalg.norm(differences, 2)
    kappa = 5.0
    alpha = 1 / (kappa * np.linalg.norm([[1 + s * s, -s], [-s, 1]], 2))
    u, z, gamma = np.zeros_like(x), np.zeros((len(pairs), channels)), 0.0
    for _ in range(steps):
        d = differences @ u - gamma
        u, z = u - kappa * alpha * (u - x + differences.T @ d), z + alpha * d
        norms = np.linalg.norm(z, axis=1, keepdims=True)
        gamma = kappa * np.maximum(0, 1 - 1 / np.maximum(norms, 1e-30)) * z
    inside = np.linalg.norm(z, axis=1) > 1
    down, right = np.split(inside, [(height - 1) * width])
    return u.reshape(image.shape), down.reshape(-1, width), right.reshape(height, -1)


def assert_like_literal(image: np.ndarray, u: np.ndarray, *support: np.ndarray) -> None:
    expected, *expected_support = literal_lbi(image, STEPS)
    np.testing.assert_allclose(u, expected, atol=1e-5)
    for mask, expected_mask in zip(support, expected_support, strict=True):
        np.testing.assert_array_equal(mask, expected_mask)
    share = np.concatenate([mask.ravel() for mask in expected_support]).mean()
    assert 0.1 < share < 1  # else the comparison says little


@pytest.fixture(params=SHAPES, ids=str)
def image(request: pytest.FixtureRequest) -> np.ndarray:
    contrast = np.linspace(0.05, 1, request.param[1], dtype=np.float32)[:, None]
    return contrast * np.random.default_rng(0).random(request.param, dtype=np.float32)


def test_compiled_loop_is_the_iteration(image: np.ndarray) -> None:
    try:
        loop = build_loop(*image.shape)
    except NoCompilerError as error:
        pytest.skip(str(error))
    run = CompiledLBI(image, loop)
    run.iterate(STEPS // 2)
    run.iterate(STEPS - STEPS // 2)
    assert_like_literal(image, run.u, *run.support())
    with pytest.raises(ValueError, match="built for"):
        CompiledLBI(image[:, 1:], loop)


def test_without_compiler_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoCompilerError, match="no C compiler"):
        build_loop(4, 4, 1)


@pytest.mark.parametrize("batch_last", [True, False])
def test_numpy_peer_is_the_iteration(image: np.ndarray, batch_last: bool) -> None:
    run = peers.NumpyLBI(np.stack([1 - image, image]), batch_last=batch_last)
    run.iterate(STEPS)
    down, right = run.support()
    assert_like_literal(image, run.images()[1], down[1], right[1])


def test_what_is_timed_as_ours_is_the_iteration() -> None:
    image = np.random.default_rng(0).random((8, 9, 3), dtype=np.float32)
    u, tied_down, tied_right = (np.asarray(a[0]) for a in advance_lbi(image[None], STEPS))
    assert_like_literal(image, u, ~tied_down, ~tied_right)


@pytest.mark.parametrize("tied_share", [0.2, 0.5, 0.8, 1.0])
def test_projections_agree(tied_share: float) -> None:
    random = np.random.default_rng(1)
    image = random.random((7, 9, 3))
    down, right = random.random((6, 9)) < tied_share, random.random((7, 8)) < tied_share
    by_graph = peers.graph_projection(image, down, right)
    matrix = peers.tied_differences(down, right).toarray()
    by_pseudo_inverse = image.reshape(63, 3) - np.linalg.pinv(matrix) @ (
        matrix @ image.reshape(63, 3)
    )
    np.testing.assert_allclose(by_graph, by_pseudo_inverse.reshape(7, 9, 3), atol=1e-10)
    np.testing.assert_allclose(peers.svd_projection(image, down, right), by_graph, atol=1e-10)
    np.testing.assert_allclose(peers.lsqr_projection(image, down, right), by_graph, atol=1e-6)


@pytest.mark.parametrize("tied_share", [0.3, 0.5, 0.7])
def test_both_labellings_agree(tied_share: float) -> None:
    random = np.random.default_rng(2)
    down, right = random.random((19, 15)) < tied_share, random.random((20, 14)) < tied_share
    graph, labelled = peers.graph_labels(down, right), peers.ndimage_labels(down, right)
    pairs = {*zip(graph.flat, labelled.flat, strict=True)}
    assert len(pairs) == len(np.unique(graph)) == len(np.unique(labelled))


@pytest.mark.parametrize("side", [1, 2, 5, 8])
def test_spiral_is_one_path_through_all_pixels(side: int) -> None:
    down, right = bench_components.spiral(side)
    assert down.sum() + right.sum() == side * side - 1
    assert peers.graph_labels(down, right).max() == 0


def test_photographs_are_the_same_every_time() -> None:
    images = photographs(5, 32)
    assert images.shape == (5, 32, 32, 3)
    assert images.dtype == np.float32
    assert images.min() >= 0
    assert images.max() <= 1
    assert (images.std(axis=(1, 2, 3)) > 0.02).all()
    np.testing.assert_array_equal(images, photographs(5, 32))
    assert photographs(1, 600, grey=True).shape == (1, 600, 600, 1)


def test_psnr() -> None:
    clean = np.zeros((2, 4, 4, 3))
    assert bench_denoisers.psnr(clean + 0.1, clean) == pytest.approx(20)


def test_timing_takes_turns_and_the_median() -> None:
    calls: list[str] = []
    measured = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert "".join(calls) == "ababab"
    assert measured.keys() == {"a", "b"}
    assert summarise([1.0, 2.0, 9.0]).value == 2
    assert (Measured(2.0, 0.1) / 4) == Measured(0.5, 0.1)


def test_targets_hold_the_ratio_or_else_ours() -> None:
    ours, peer = Measured(1.0), Measured(4.0)
    assert Row("", "s", ours, peer, at_most(1 / 3)).verdict == "met"
    assert Row("", "s", ours, peer, at_most(1 / 5)).verdict == "missed"
    assert Row("", "images/s", ours, target=at_least(2)).verdict == "missed"
    assert Row("", "s", ours, peer).verdict == ""
    table = format_table([Row("ours vs theirs", "s", ours, peer, at_most(1 / 3), "a note")])
    for text in ("ours vs theirs", "1/4", "<= 1/3", "met", "a note"):
        assert text in table


def test_json_is_written_whole_or_not_at_all(tmp_path) -> None:
    path = tmp_path / "new" / "out.json"
    write_json(path, {"value": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"value": math.nan})
    assert json.loads(path.read_text()) == {"value": 1}
    assert [file.name for file in path.parent.iterdir()] == ["out.json"]


def test_unknown_benchmark_lists_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["speed"])
    assert "smoothing" in capsys.readouterr().err


def test_quick_run_prints_a_table_and_writes_json(
    tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "smoothing.json"
    assert bench.main(["smoothing", "--quick", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    written = json.loads(out.read_text())
    assert written["machine"].keys() >= {"cpu", "cores", "jax"}
    for row in written["rows"]:
        assert row["what"] in printed
        assert row["ours"]["value"] > 0
        assert row["verdict"] in ("met", "missed", "")
        if row["peer"]:
            assert row["ratio"] == pytest.approx(row["ours"]["value"] / row["peer"]["value"])
    for row in written["rows"]:
        if "peak memory" in row["what"]:
            assert 1 < row["ours"]["value"] < 100  # at least the batch itself
    for text in ("ratio", "target", "at(0.6)", "C loop", "SVD", "denoise_tv", "spiral", "memory"):
        assert text in printed
