"""The paper's numbers, for the columns beside ours in a report.

The paper trained ResNet-18 (CIFAR), ResNet-50 (ImageNet100) and ViT-tiny; a run of ours may have another network of the
same family, such as resnet56. `lookup` compares within the family, `backbone` names the paper's network and `caveats`
says what a reader must know before comparing.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

_FAMILIES = ("resnet", "vit")
# Trained on smoothed images: another level of sparsity is another network.
_SMOOTHED_IN_TRAINING = ("fix", "iterative")
# What the paper calls our ways of preprocessing; it knows no other.
_TREATMENTS = {"none": "raw", "paper": "smoothed"}
# The paper's iterative training for its table of clean data ended at this level; ours is compared there.
_ITERATIVE_LAST_LEVEL = 0.8


@functools.cache
def tables() -> dict[str, Any]:
    """All the numbers, as printed; see `paper_tables.json`."""
    return json.loads(Path(__file__).with_name("paper_tables.json").read_text(encoding="utf-8"))


def lookup(evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    """The paper's number for a row of a results file.

    The family of the network must match, the network itself may differ (see `backbone`). Only images as they are
    (`none`) and those preprocessed as in the paper (`paper`) have a number. The rules where the paper leaves room:

    - Corruptions: the mean over five severities on CIFAR (`severity` None); "2 severity" on ImageNet100 is read as
      severity 2.
    - Adversarial: the paper attacks the bare network by FGSM and PGD and does not separate the two: its numbers stand
      beside `pgd`, attacker ``"none"`` without and ``"unaware"`` with smoothing. No stronger attacker is in the paper.
    - Low resolution and frequency: one number per network, in tables that (unlike the others) have no second row "with
      preprocessing", so it stands beside our unsmoothed test images.
    - Clean: each level of fixed training is tested at that level; vanilla is level 1, iterative training is compared at
      the level where the paper's ended, 0.8.

    Args:
      evaluation: what `evaluation.json` holds: dataset, model, method and sparsity are read.
      row: one row of `results.jsonl`.

    Returns:
      Percent, or seconds in the suite `runtime`; None where the paper has no such number.
    """
    rule = _SUITES.get(row.get("suite", ""))
    unit = "seconds" if row.get("suite") == "runtime" else "accuracy"
    if rule is None or row.get("metric") != unit:
        return None
    if row.get("preprocess") not in (None, *_TREATMENTS):
        return None
    return rule(evaluation, row)


def backbone(evaluation: Mapping[str, Any]) -> str | None:
    """The paper's network for a run's dataset and family, such as ``"ResNet-18"``; None if it has none."""
    return _find("backbones", _family(evaluation), evaluation.get("dataset"))


def caveats(evaluation: Mapping[str, Any], suites: Collection[str]) -> list[str]:
    """What differs between a run and the paper's setting, in sentences.

    Args:
      evaluation: as in `lookup`; `attack_options` may say that epsilon is on normalised images.
      suites: those in which the paper's numbers stand beside the run's.
    """
    network, model = backbone(evaluation), str(evaluation.get("model", ""))
    differ = []
    if network and set(suites) - {"runtime"} and _plain(model) != _plain(network):
        differ.append(f"The paper's network is {network}, this run's is {model}.")
    if "adversarial" in suites:
        differ.append(
            "The paper does not separate FGSM from PGD; its numbers stand beside our PGD."
        )
        options = evaluation.get("attack_options") or {}
        if options.get("epsilon_unit") != "normalised":
            differ.append(
                "The paper gives epsilon on normalised images, ours is in pixels. If its images are divided by their "
                "standard deviation, the same fraction of 255 is a weaker attack in the paper."
            )
    if "corruptions" in suites and evaluation.get("dataset") == "imagenet100":
        differ.append("The paper's “2 severity” on ImageNet100 is read as severity 2.")
    if "lowres" in suites or "frequency" in suites:
        differ.append(
            "The paper does not say whether low resolution and frequency test images are smoothed; its tables have one "
            "number each, which stands beside our unsmoothed ones."
        )
    return differ


def runtime_task() -> str:
    """What the paper's running times measure, and on which machine."""
    return tables()["runtime"]["task"]


def _corruptions(evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    severity = 2 if evaluation.get("dataset") == "imagenet100" else None
    if row.get("severity") != severity or not _level_matches(evaluation, row):
        return None
    return _of_family("corruptions", evaluation, row["name"], _treatment(row))


def _adversarial(evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    attackers = {"none": "raw", "unaware": "smoothed"}
    treatment = attackers.get(row.get("attacker") or "")
    strength = _fraction_of_255(row.get("epsilon"))
    if row["name"] != "pgd" or treatment is None or not _level_matches(evaluation, row):
        return None
    value = _of_family("adversarial", evaluation, strength, treatment)
    if value is None and _family(evaluation) == "resnet" and strength == "8/255":
        dataset, method = evaluation.get("dataset"), evaluation.get("method")
        value = _find("adversarial_defences", dataset, treatment, method)
    return value


def _one_number(evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    """Low resolution and frequency: raw images only."""
    if _is_smoothed(row) or not _level_matches(evaluation, row):
        return None
    radius = row.get("radius")
    if row["suite"] == "frequency" and radius not in (None, tables()["frequency_radius"]):
        return None
    return _of_family(row["suite"], evaluation, row["name"])


def _clean(evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    dataset, method = evaluation.get("dataset"), evaluation.get("method")
    level = row.get("sparsity")
    if _family(evaluation) != "resnet":
        return None
    if method == "vanilla":
        # Level 1 is the image itself, bit for bit.
        original = not _is_smoothed(row) or _same(level, 1.0)
        return _find("clean", dataset, "1.0") if original else None
    if not _is_smoothed(row) or level is None:
        return None
    if method == "iterative":
        return _find("clean", dataset, "iterative") if _same(level, _ITERATIVE_LAST_LEVEL) else None
    if method == "fix" and _same(level, evaluation.get("sparsity")):
        return _find("clean", dataset, f"{level:.1f}") if _same(level, round(level, 1)) else None
    return None


def _runtime(evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    del evaluation  # the paper has one table, for one task
    words = set(re.findall(r"[a-z]+", row["name"].lower()))
    for projection, seconds in tables()["runtime"]["seconds"].items():
        if projection in words:
            return seconds
    return None


_SUITES: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], float | None]] = {
    "clean": _clean,
    "corruptions": _corruptions,
    "adversarial": _adversarial,
    "lowres": _one_number,
    "frequency": _one_number,
    "runtime": _runtime,
}


def _of_family(suite: str, evaluation: Mapping[str, Any], *keys: Any) -> float | None:
    dataset, method = evaluation.get("dataset"), evaluation.get("method")
    return _find(suite, _family(evaluation), dataset, *keys, method)


def _find(*keys: Any) -> Any:
    found: Any = tables()
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _family(evaluation: Mapping[str, Any]) -> str | None:
    model = str(evaluation.get("model", "")).lower()
    return next((family for family in _FAMILIES if model.startswith(family)), None)


def _treatment(row: Mapping[str, Any]) -> str | None:
    return _TREATMENTS.get(row.get("preprocess") or "none")


def _is_smoothed(row: Mapping[str, Any]) -> bool:
    return _treatment(row) == "smoothed"


def _level_matches(evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether the level of sparsity is the paper's, where the row depends on one."""
    method = evaluation.get("method")
    depends = _is_smoothed(row) or method in _SMOOTHED_IN_TRAINING
    if method == "blur" or not depends:
        return True
    level = row.get("sparsity")
    return _same(
        evaluation.get("sparsity") if level is None else level,
        _find("sparsity", evaluation.get("dataset")),
    )


def _same(level: float | None, other: float | None) -> bool:
    if level is None or other is None:
        return False
    return math.isclose(level, other, abs_tol=1e-6)


def _fraction_of_255(epsilon: float | None) -> str | None:
    if epsilon is None or abs(epsilon * 255 - round(epsilon * 255)) > 0.01:
        return None
    return f"{round(epsilon * 255)}/255"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
