"""Weights in the real formats: PyTorch's logits from its files, strictness, round trips."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from train import models
from train.models.resnet import Bottleneck, CifarResNet, ResNet
from train.models.vit import VisionTransformer

FIXTURES = Path(__file__).parent / "fixtures"
CLASSES = 5


def untrained(make: Callable[[], models.Classifier]) -> models.Classifier:
    """A model with arbitrary values; its own initialisers would take seconds to compile."""
    graph, state = nnx.split(nnx.eval_shape(make))
    random = np.random.default_rng(0)

    def draw(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        values = random.normal(float(len(leaf.shape) == 1), 0.1, leaf.shape)  # near 1: variances
        return jnp.asarray(values, leaf.dtype)

    return nnx.merge(graph, jax.tree.map(draw, state))


@pytest.fixture(autouse=True)
def strict_rank_promotion() -> Iterator[None]:
    with jax.numpy_rank_promotion("raise"):
        yield


def make_vit(
    image_size: int = 16, num_classes: int = CLASSES, patch_size: int = 4
) -> models.Classifier:
    sizes = {"image_size": image_size, "num_classes": num_classes, "patch_size": patch_size}
    return untrained(
        lambda: VisionTransformer(hidden=12, layers=2, heads=3, mlp=20, rngs=nnx.Rngs(0), **sizes)
    )


def make(name: str, num_classes: int = CLASSES, **options: object) -> models.Classifier:
    """The model of the same shape as a fixture."""
    if name == "vit_narrow":
        return make_vit(num_classes=num_classes)
    kind, sizes = {
        "resnet18_narrow": (ResNet, {"blocks": (2, 1, 1, 1), "width": 4}),
        "resnet18_narrow_3x3": (ResNet, {"blocks": (1, 2), "width": 4, "stem": "3x3"}),
        "resnet50_narrow": (ResNet, {"block": Bottleneck, "blocks": (2, 1, 1, 1), "width": 2}),
        "resnet8_narrow": (CifarResNet, {"blocks": (1, 1, 1), "width": 4}),
    }[name]
    sizes = {**sizes, **options, "num_classes": num_classes, "image_size": 32}
    return untrained(lambda: kind(rngs=nnx.Rngs(0), **sizes))


RESNETS = ["resnet18_narrow", "resnet18_narrow_3x3", "resnet50_narrow", "resnet8_narrow"]
FAMILIES = [*RESNETS, "vit_narrow"]


def build(name: str, num_classes: int) -> models.Classifier:
    return untrained(
        lambda: models.build(name, num_classes=num_classes, image_size=32, rngs=nnx.Rngs(0))
    )


def run(
    model: models.Classifier, images: np.ndarray, train: bool = False
) -> tuple[jax.Array, dict[str, jax.Array], nnx.State]:
    graph, *state = nnx.split(model, nnx.Param, nnx.BatchStat)
    compiled = jax.jit(lambda images: models.apply(graph, *state, images, train=train))
    return compiled(jnp.asarray(images, jnp.float32) / 255)


def flat(model: nnx.Module) -> dict[tuple, np.ndarray]:
    return {path: np.array(leaf.get_value()) for path, leaf in nnx.to_flat_state(nnx.state(model))}


def edited(tmp_path: Path, name: str, edit: Callable[[dict[str, np.ndarray]], object]) -> Path:
    """A copy of a fixture's weights, changed."""
    tensors = load_file(FIXTURES / f"{name}.safetensors")
    edit(tensors)
    save_file(tensors, tmp_path / "edited.safetensors")
    return tmp_path / "edited.safetensors"


@pytest.mark.parametrize("name", RESNETS)
def test_resnet_equals_pytorch(name: str, tmp_path: Path) -> None:
    model = make(name)
    report = models.load(model, FIXTURES / f"{name}.safetensors")
    assert report.fresh == report.interpolated == ()
    assert all(ignored.endswith("num_batches_tracked") for ignored in report.ignored)
    expected = np.load(FIXTURES / f"{name}.npz")
    logits, *_ = run(model, expected["images"])
    np.testing.assert_allclose(logits, expected["logits"], rtol=1e-4, atol=1e-4)
    logits, _, stats = run(model, expected["images"], train=True)
    np.testing.assert_allclose(logits, expected["train_logits"], rtol=1e-3, atol=1e-3)

    nnx.update(model, stats)
    models.save(model, tmp_path / "moved.safetensors")
    moved = load_file(tmp_path / "moved.safetensors")
    statistics = [key for key in moved if "running" in key]
    assert {f"moved.{key}" for key in statistics} == {key for key in expected if "running" in key}
    for key in statistics:
        np.testing.assert_allclose(moved[key], expected[f"moved.{key}"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("image_size", [16, 24, 12])
def test_vit_logits_equal_hugging_face(image_size: int) -> None:
    model = make_vit(image_size)
    report = models.load(model, FIXTURES / "vit_narrow.safetensors")
    resized = ("vit.embeddings.position_embeddings",) if image_size != 16 else ()
    assert report.interpolated == resized
    expected = np.load(FIXTURES / "vit_narrow.npz")
    np.testing.assert_allclose(
        run(model, expected[f"images{image_size}"])[0],
        expected[f"logits{image_size}"],
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_round_trip_is_bit_exact(name: str, tmp_path: Path) -> None:
    model, again = make(name), make(name)
    models.load(model, FIXTURES / f"{name}.safetensors")
    models.save(model, tmp_path / "weights.safetensors")
    written = load_file(tmp_path / "weights.safetensors")
    published = load_file(FIXTURES / f"{name}.safetensors")
    published = {k: v for k, v in published.items() if "num_batches_tracked" not in k}
    assert written.keys() == published.keys()
    for key, value in published.items():
        assert written[key].dtype == np.float32
        np.testing.assert_array_equal(written[key], value)
    report = models.load(again, tmp_path / "weights.safetensors", allow_new_head=False)
    assert set(report.loaded) == set(written)
    left, right = flat(model), flat(again)
    assert left.keys() == right.keys()
    assert all((left[path] == right[path]).all() for path in left)


def test_every_named_model_saves_and_loads(tmp_path: Path) -> None:
    for name in ("_tiny", "resnet8"):
        model = build(name, num_classes=3)
        models.save(model, tmp_path / "weights.safetensors")
        report = models.load(model, tmp_path / "weights.safetensors")
        assert report.metadata["model"] == name
        assert report.metadata["num_classes"] == "3"
        assert report.metadata["image_size"] == "32"
        assert report.metadata["format"] == "pt"
        assert json.loads(report.metadata["mean"]) == [0.485, 0.456, 0.406]


@pytest.mark.parametrize("name", FAMILIES)
def test_head_of_other_size_stays_fresh_and_is_reported(name: str) -> None:
    model, untouched = make(name, num_classes=3), make(name, num_classes=3)
    report = models.load(model, FIXTURES / f"{name}.safetensors")
    assert {fresh.rsplit(".", 1)[1] for fresh in report.fresh} == {"weight", "bias"}
    assert not set(report.fresh) & set(report.loaded)
    before, after = flat(untouched), flat(model)
    for path in before:
        same = (before[path] == after[path]).all()
        assert same == (path[0] == "head"), path
    with pytest.raises(ValueError, match=r"other shape: .*\(5,\) in the file, \(3,\) in the model"):
        models.load(
            make(name, num_classes=3), FIXTURES / f"{name}.safetensors", allow_new_head=False
        )


@pytest.mark.parametrize("name", FAMILIES)
def test_missing_and_unexpected_names_are_listed_and_nothing_changes(
    name: str, tmp_path: Path
) -> None:
    tensors = load_file(FIXTURES / f"{name}.safetensors")
    victim = next(key for key in tensors if "num_batches" not in key and "layer" in key)

    def edit(tensors: dict[str, np.ndarray]) -> None:
        tensors["stranger.weight"] = tensors.pop(victim)

    model = make(name)
    before = flat(model)
    with pytest.raises(ValueError) as caught:
        models.load(model, edited(tmp_path, name, edit))
    assert f"missing in the file: {victim}\n" in str(caught.value)
    assert "unexpected in the file: stranger.weight" in str(caught.value)
    after = flat(model)
    assert all((before[path] == after[path]).all() for path in before)


def test_missing_head_is_an_error(tmp_path: Path) -> None:
    file = edited(tmp_path, "vit_narrow", lambda tensors: tensors.pop("classifier.bias"))
    for num_classes in (CLASSES, 3):
        with pytest.raises(ValueError, match=r"missing in the file: classifier\.bias"):
            models.load(make_vit(num_classes=num_classes), file)


def test_pooler_is_ignored(tmp_path: Path) -> None:
    extra = {"vit.pooler.dense.weight": np.zeros((12, 12), np.float32)}
    report = models.load(
        make_vit(), edited(tmp_path, "vit_narrow", lambda tensors: tensors.update(extra))
    )
    assert report.ignored == ("vit.pooler.dense.weight",)


def test_large_stem_into_small_says_so() -> None:
    model = make("resnet18_narrow")
    small = make("resnet18_narrow", stem="3x3")
    models.load(model, FIXTURES / "resnet18_narrow.safetensors")
    with pytest.raises(ValueError, match=r"conv1\.weight.*a 7x7 stem cannot fill a 3x3 stem.*7x7"):
        models.load(small, FIXTURES / "resnet18_narrow.safetensors")


def test_other_patch_size_says_so() -> None:
    with pytest.raises(ValueError, match=r"a 4x4 patch cannot fill a 2x2 patch.*patch_size=4"):
        models.load(make_vit(8, patch_size=2), FIXTURES / "vit_narrow.safetensors")


def test_positions_off_the_grid_are_a_shape_error(tmp_path: Path) -> None:
    name = "vit.embeddings.position_embeddings"

    def edit(tensors: dict[str, np.ndarray]) -> None:
        tensors[name] = np.ascontiguousarray(tensors[name][:, :-1])

    with pytest.raises(ValueError, match=r"position_embeddings \(1, 16, 12\) in the file"):
        models.load(make_vit(), edited(tmp_path, "vit_narrow", edit))


def test_long_lists_are_shortened() -> None:
    model = build("resnet20", num_classes=10)
    with pytest.raises(ValueError, match=r"bn1.*and \d+ more"):
        models.load(model, FIXTURES / "vit_narrow.safetensors")


def test_other_normalisation_is_an_error(tmp_path: Path) -> None:
    options = {"mean": (0.1, 0.2, 0.3), "std": (1.0, 1.0, 1.0)}
    models.save(make("resnet8_narrow", **options), tmp_path / "weights.safetensors")
    models.load(make("resnet8_narrow", **options), tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match=r"'cifar_resnet'.*\n.*pixel mean: \[0\.1, 0\.2, 0\.3\]"):
        models.load(make("resnet8_narrow"), tmp_path / "weights.safetensors")


def test_half_precision_files_load(tmp_path: Path) -> None:
    def edit(tensors: dict[str, np.ndarray]) -> None:
        for key, value in tensors.items():
            tensors[key] = value.astype(jnp.bfloat16 if "conv" in key else np.float16)

    model = make("resnet8_narrow")
    models.load(model, edited(tmp_path, "resnet8_narrow", edit))
    assert {leaf.dtype for leaf in flat(model).values()} == {np.dtype("float32")}
    expected = np.load(FIXTURES / "resnet8_narrow.npz")
    np.testing.assert_allclose(
        run(model, expected["images"])[0], expected["logits"], atol=0.1, rtol=0.05
    )


def test_absent_and_damaged_files(tmp_path: Path) -> None:
    model = make("resnet8_narrow")
    with pytest.raises(FileNotFoundError):
        models.load(model, tmp_path / "absent.safetensors")
    whole = (FIXTURES / "resnet8_narrow.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"cut\.safetensors is not a whole"):
        models.load(model, tmp_path / "cut.safetensors")


def test_models_without_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no weight names for Linear; known are ResNet"):
        models.save(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), tmp_path / "weights.safetensors")


def test_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weights.safetensors"
    model = make("resnet8_narrow")
    models.save(model, file)
    before = file.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    models.load(model, FIXTURES / "resnet8_narrow.safetensors")
    with pytest.raises(OSError, match="disk full"):
        models.save(model, file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_equal_weights_give_equal_bytes(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    model = make("resnet8_narrow")
    payloads = set()
    for _ in range(5):
        models.save(model, file)
        payloads.add(file.read_bytes())
    assert len(payloads) == 1
    # Not the order of a hash map, which another process would not repeat.
    payload = payloads.pop()
    length = int.from_bytes(payload[:8], "little")
    assert length % 8 == 0
    header = json.loads(payload[8 : 8 + length])
    assert list(header) == sorted(header)
    assert list(header["__metadata__"]) == sorted(header["__metadata__"])


def test_published_resnet20_classifies_real_images() -> None:
    folder = os.environ.get("ISVS_DATA")
    if not folder:
        pytest.skip("ISVS_DATA names no folder with cifar10_resnet20.safetensors")
    model = build("resnet20", num_classes=10)
    report = models.load(model, Path(folder) / "cifar10_resnet20.safetensors", allow_new_head=False)
    assert len(report.loaded) == 97
    reference = np.load(Path(folder) / "cifar10c_reference_20x5.npz")
    predicted = run(model, reference["clean"])[0].argmax(-1)
    assert (predicted == reference["labels"]).mean() >= 0.85
