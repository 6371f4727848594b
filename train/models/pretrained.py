"""Weights in .safetensors files, under the names that PyTorch users know.

Torchvision and timm name ResNet-18 and ResNet-50 `layer1.0.conv1.weight`, `fc.weight`; the CIFAR
ResNets call their head `linear`; Hugging Face names a ViT `vit.encoder.layer.0. ...`. Files are
read and written under these names, so that weights go both ways.
"""

import dataclasses
import json
import os
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from flax import nnx

from train.models.layers import Classifier
from train.models.noise import NOISE_SCALE
from train.models.resnet import CifarResNet, ResNet
from train.models.vit import VisionTransformer

_Rule = tuple[str, str | Callable[[re.Match[str]], str]]

# Start of our module path -> theirs, first match wins.
_RESNET_NAMES: tuple[_Rule, ...] = (
    (r"stages\.(\d+)\.", lambda match: f"layer{int(match[1]) + 1}."),
)
_VIT_NAMES: tuple[_Rule, ...] = (
    (r"(cls_token|position_embeddings)$", r"vit.embeddings.\1"),
    (r"patch\.", r"vit.embeddings.patch_embeddings.projection."),
    (r"blocks\.(\d+)\.(query|key|value)\.", r"vit.encoder.layer.\1.attention.attention.\2."),
    (r"blocks\.(\d+)\.out\.", r"vit.encoder.layer.\1.attention.output.dense."),
    (r"blocks\.(\d+)\.norm_(before|after)\.", r"vit.encoder.layer.\1.layernorm_\2."),
    (r"blocks\.(\d+)\.mlp_in\.", r"vit.encoder.layer.\1.intermediate.dense."),
    (r"blocks\.(\d+)\.mlp_out\.", r"vit.encoder.layer.\1.output.dense."),
    (r"norm\.", r"vit.layernorm."),
    (r"head\.", r"classifier."),
)
_NAMES: dict[type, tuple[_Rule, ...]] = {
    ResNet: (*_RESNET_NAMES, (r"head\.", "fc.")),
    CifarResNet: (*_RESNET_NAMES, (r"head\.", "linear.")),
    VisionTransformer: _VIT_NAMES,
}
_LEAF_NAMES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}

# Axis orders by rank: convolutions HWIO <-> OIHW, linear layers [in, out] <-> [out, in].
_TO_TORCH = {0: (), 1: (0,), 2: (1, 0), 3: (0, 1, 2), 4: (3, 2, 0, 1)}
_FROM_TORCH = {0: (), 1: (0,), 2: (1, 0), 3: (0, 1, 2), 4: (2, 3, 1, 0)}

# Parameters that methods add to a model (`Classifier.smoothing`, `train.models.noise`): no published
# file has them.
_ADDED = re.compile(rf"smoothing\..*|.*\.{NOISE_SCALE}")

# Counters that PyTorch keeps, and the pooler of a ViT: neither takes part in classification.
_IGNORED = re.compile(r"(.*\.)?num_batches_tracked|vit\.pooler\..*")

_POSITION = "vit.embeddings.position_embeddings"
_LONGEST_LIST = 20


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What `load` did, by the names in the file.

    Attributes:
        loaded: copied as they are.
        interpolated: position embeddings resized to the model's grid.
        fresh: what kept its initialisation: the head, as the file's has another number of classes;
            layers that a method added, and the file knows nothing of.
        ignored: in the file, but of no use.
        metadata: the file's own, empty if it has none.
    """

    loaded: tuple[str, ...]
    interpolated: tuple[str, ...]
    fresh: tuple[str, ...]
    ignored: tuple[str, ...]
    metadata: Mapping[str, str]


def load(
    model: Classifier,
    file: str | os.PathLike[str],
    *,
    allow_new_head: bool = True,
    allow_new_layers: bool = False,
) -> LoadReport:
    """Fill a model from a file, all of it or nothing.

    Args:
        model: changed in place.
        file: .safetensors with the names of torchvision, timm, Hugging Face or the CIFAR ResNets.
        allow_new_head: where the file has another number of classes, keep the model's own head
            instead of failing.
        allow_new_layers: where the file has none of the parameters that a method added to the
            model, keep the model's own instead of failing.

    Returns:
        What was loaded, and what was not.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, lacks a name, has one too many or another shape, or
            says that its weights expect another normalisation of the pixels.
    """
    tensors, metadata = _read(Path(file))
    ignored = tuple(name for name in tensors if _IGNORED.fullmatch(name))
    tensors = {name: tensor for name, tensor in tensors.items() if name not in ignored}
    variables = _variables(model)
    wanted = {name: _torch_shape(variable) for name, (_, variable) in variables.items()}

    added = tuple(name for name in variables if _ADDED.fullmatch(name))
    head = tuple(
        name for name, (path, _) in variables.items() if path[0] == "head" and name not in added
    )
    fresh = head if allow_new_head and _has_other_classes(head, tensors, wanted) else ()
    absent = added if allow_new_layers and tensors.keys().isdisjoint(added) else ()
    wanted = {name: shape for name, shape in wanted.items() if name not in absent}
    fresh += absent
    interpolated: tuple[str, ...] = ()
    if isinstance(model, VisionTransformer) and _POSITION in tensors:
        resized = _resize_positions(tensors[_POSITION], model.grid)
        if resized.shape != tensors[_POSITION].shape:
            tensors[_POSITION], interpolated = resized, (_POSITION,)

    problems = _differences(tensors, wanted, fresh) + _other_pixels(model, metadata)
    if problems:
        origin = f" (written for {metadata['model']!r})" if "model" in metadata else ""
        raise ValueError(f"{file}{origin} does not fit {model.name!r}:\n  " + "\n  ".join(problems))
    flat = {}
    for name, (path, variable) in variables.items():
        if name not in fresh:
            array = tensors[name].transpose(_FROM_TORCH[tensors[name].ndim])
            flat[path] = variable.replace(jnp.asarray(array, jnp.float32))
    nnx.update(model, nnx.from_flat_state(flat))
    loaded = tuple(name for name in variables if name not in fresh + interpolated)
    return LoadReport(loaded, interpolated, fresh, ignored, metadata)


def save(model: Classifier, file: str | os.PathLike[str]) -> None:
    """Write all parameters and running averages, float32, under their PyTorch names.

    The file appears whole or not at all, and equal weights give equal bytes.

    Args:
        model: one of this package's.
        file: ends in .safetensors by custom; its folder must exist.
    """
    tensors = {}
    for name, (_, variable) in _variables(model).items():
        array = np.asarray(variable.get_value(), np.float32)
        # `ascontiguousarray` would give a number an axis.
        tensors[name] = array.transpose(_TO_TORCH[array.ndim]).copy(order="C")
    metadata = {
        "format": "pt",  # Hugging Face refuses files without it
        "model": model.name,
        "num_classes": str(model.num_classes),
        "image_size": str(model.image_size),
        "mean": json.dumps(model.mean),
        "std": json.dumps(model.std),
    }
    _write_atomically(Path(file), _sort_header(safetensors.numpy.save(tensors, metadata)))


def _variables(model: Classifier) -> dict[str, tuple[tuple, nnx.Variable]]:
    """External name -> path in the model, and variable."""
    rules = next((_NAMES[kind] for kind in type(model).__mro__ if kind in _NAMES), None)
    if rules is None:
        known = ", ".join(kind.__name__ for kind in _NAMES)
        raise ValueError(f"no weight names for {type(model).__name__}; known are {known}")
    found = {}
    for path, variable in nnx.to_flat_state(nnx.state(model, (nnx.Param, nnx.BatchStat))):
        *modules, leaf = map(str, path)
        name = ".".join([*modules, _LEAF_NAMES.get(leaf, leaf)])
        for pattern, replacement in rules:
            name, replaced = re.subn(f"^{pattern}", replacement, name)
            if replaced:
                break
        found[name] = (path, variable)
    return found


def _torch_shape(variable: nnx.Variable) -> tuple[int, ...]:
    shape = variable.shape
    return tuple(shape[axis] for axis in _TO_TORCH[len(shape)])


def _has_other_classes(
    head: tuple[str, ...], tensors: Mapping[str, np.ndarray], wanted: Mapping[str, tuple[int, ...]]
) -> bool:
    """Whether the file's head is whole, and differs from the model's in its classes alone."""
    if not all(name in tensors and tensors[name].ndim == len(wanted[name]) for name in head):
        return False
    same_inputs = all(tensors[name].shape[1:] == wanted[name][1:] for name in head)
    classes = {tensors[name].shape[0] for name in head}
    return same_inputs and len(classes) == 1 and classes != {wanted[head[0]][0]}


def _differences(
    tensors: Mapping[str, np.ndarray],
    wanted: Mapping[str, tuple[int, ...]],
    fresh: tuple[str, ...],
) -> list[str]:
    """Names and shapes in which a file and a model disagree, as sentences."""
    problems = []
    for kind, names in (
        ("missing in the file", wanted.keys() - tensors.keys()),
        ("unexpected in the file", tensors.keys() - wanted.keys()),
    ):
        if names:
            problems.append(f"{kind}: {_shortened(sorted(names))}")
    shapes = []
    for name in sorted(wanted.keys() & tensors.keys() - set(fresh)):
        came = tensors[name].shape
        if came != wanted[name]:
            shapes.append(f"{name} {came} in the file, {wanted[name]} in the model")
            if len(came) == len(wanted[name]) == 4 and came[2:] != wanted[name][2:]:
                shapes[-1] += _explain_kernel(name, came[2:], wanted[name][2:])
    if shapes:
        problems.append(f"other shape: {_shortened(shapes)}")
    return problems


def _explain_kernel(name: str, came: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    sizes = f"a {came[0]}x{came[1]} {{0}} cannot fill a {wanted[0]}x{wanted[1]} {{0}}"
    if name == "conv1.weight":
        return f" ({sizes.format('stem')}: build the model with stem='{came[0]}x{came[1]}')"
    if "patch_embeddings" in name:
        return f" ({sizes.format('patch')}: build the model with patch_size={came[0]})"
    return ""


def _shortened(items: list[str]) -> str:
    more = len(items) - _LONGEST_LIST
    return ", ".join(items[:_LONGEST_LIST]) + (f" and {more} more" if more > 0 else "")


def _other_pixels(model: Classifier, metadata: Mapping[str, str]) -> list[str]:
    """Normalisation that the file states (only ours do) and the model does not have."""
    problems = []
    for key, ours in (("mean", model.mean), ("std", model.std)):
        if key in metadata and metadata[key] != json.dumps(ours):
            problems.append(f"pixel {key}: {metadata[key]} in the file, {list(ours)} in the model")
    return problems


def _resize_positions(positions: np.ndarray, grid: int) -> np.ndarray:
    """Bicubic resizing of [1, 1 + n * n, D] to [1, 1 + grid * grid, D]; the class token stays.

    The same as Hugging Face's `interpolate_pos_encoding`: PyTorch's bicubic without antialiasing.
    A shape that is no square grid is returned as it came, for the caller to refuse.
    """
    old = round(max(positions.shape[1] - 1, 0) ** 0.5) if positions.ndim == 3 else 0
    if old in (0, grid) or positions.shape[:2] != (1, 1 + old * old):
        return positions
    across = _bicubic_matrix(old, grid)  # [grid, old]
    patches = positions[0, 1:].reshape(old, old, -1).astype(np.float64)
    patches = np.einsum("yi,xj,ijd->yxd", across, across, patches)
    resized = np.concatenate([positions[0, :1], patches.reshape(grid * grid, -1)])
    return resized[None].astype(np.float32)  # [1, 1 + grid * grid, D]


def _bicubic_matrix(old: int, new: int, sharpness: float = -0.75) -> np.ndarray:
    """Weights [new, old] of cubic convolution with half-pixel centres and repeated borders."""
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    matrix = np.zeros((new, old))
    for offset in (-1, 0, 1, 2):
        taps = np.floor(centres).astype(int) + offset
        t = np.abs(centres - taps)  # in [0, 2]
        near = (sharpness + 2) * t**3 - (sharpness + 3) * t**2 + 1
        far = sharpness * (t**3 - 5 * t**2 + 8 * t - 4)
        np.add.at(matrix, (np.arange(new), np.clip(taps, 0, old - 1)), np.where(t <= 1, near, far))
    return matrix


def _read(file: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        with safetensors.safe_open(file, framework="numpy") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            return tensors, dict(opened.metadata() or {})
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file} is not a whole .safetensors file: {error}") from error


def _sort_header(payload: bytes) -> bytes:
    """The same .safetensors bytes with the header in a fixed order.

    The library writes metadata in an order that changes from process to process.
    """
    (length,) = struct.unpack("<Q", payload[:8])
    header = json.dumps(json.loads(payload[8 : 8 + length]), sort_keys=True, separators=(",", ":"))
    encoded = header.encode()
    encoded += b" " * (-len(encoded) % 8)  # the tensors stay aligned
    return struct.pack("<Q", len(encoded)) + encoded + payload[8 + length :]


def _write_atomically(file: Path, payload: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(payload)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
