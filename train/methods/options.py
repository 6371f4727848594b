"""Which options each method reads, and their values where the user gives none."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import isvs

if TYPE_CHECKING:
    from train.config import Config

Defaults = dict[str, Any]

# What must hold for an option to be read, in the words of the command line.
_ATTACKED = "--method adversarial, awp, pni, or sat with --trades-beta above 0"
_SMOOTHED = "--method or --view fix or iterative"
NEEDS = {
    "view": "a method that is not itself a view",
    "stiffness": _SMOOTHED,
    "speckle_area": _SMOOTHED,
    "speckle_contrast": f"{_SMOOTHED}, and --speckle-area",
    "attack_epsilon": _ATTACKED,
    "attack_step": _ATTACKED,
    "attack_steps": _ATTACKED,
    "attack_through": _ATTACKED,
    "trades_beta": "--method adversarial, awp or sat",
    "sat_start": "--method sat",
    "awp_gamma": "--method awp",
    "awp_warmup": "--method awp",
    "pni_granularity": "--method pni",
    "layer": "--method tv_layer",
    "tv_form": "--method tv_layer --layer tv",
    "tv_initial": "--method tv_layer --layer tv",
    "layer_level": "--method tv_layer --layer isvs",
    "layer_mode": "--method tv_layer --layer isvs",
    "layer_level_from": "--method tv_layer --layer isvs --layer-mode scheduled",
    "augmix_severity": "--method augmix",
    "jsd_weight": "--method augmix",
    "noise_sigma": "--method noise",
}

_SMOOTHED_VIEWS = ("fix", "iterative")
_SAT_TENTHS = 7  # of the epochs, before targets begin to move


def _smoothing(config: "Config") -> Defaults:
    contrast = {} if config.speckle_area is None else {"speckle_contrast": isvs.Speckle.contrast}
    return {"stiffness": None, "speckle_area": None, **contrast}


def _attack(epsilon: float, step: float, steps: int) -> Defaults:
    return {
        "attack_epsilon": epsilon,
        "attack_step": step,
        "attack_steps": steps,
        "attack_through": "view",
    }


def _adversarial(config: "Config", epochs: int) -> Defaults:
    return {**_attack(8 / 255, 2 / 255, 10), "trades_beta": 0.0}


def _awp(config: "Config", epochs: int) -> Defaults:
    gamma = 0.005 if config.trades_beta else 0.01
    return {**_adversarial(config, epochs), "awp_gamma": gamma, "awp_warmup": 0.0}


def _pni(config: "Config", epochs: int) -> Defaults:
    return {**_attack(0.031, 0.01, 7), "pni_granularity": "layer"}


def _sat(config: "Config", epochs: int) -> Defaults:
    attack = {} if config.trades_beta == 0 else _attack(0.031, 0.007, 10)
    return {**attack, "trades_beta": 6.0, "sat_start": _SAT_TENTHS * epochs // 10}


def _tv_layer(config: "Config", epochs: int) -> Defaults:
    if config.layer != "isvs":
        return {"layer": "tv", "tv_form": "smooth", "tv_initial": 0.1}
    level = 0.6 if config.layer_level is None else config.layer_level
    start = {"layer_level_from": level / 2} if config.layer_mode == "scheduled" else {}
    return {"layer": "isvs", "layer_level": level, "layer_mode": "fixed", **start}


def _augmix(config: "Config", epochs: int) -> Defaults:
    return {"augmix_severity": 3.0, "jsd_weight": 12.0}


def _noise(config: "Config", epochs: int) -> Defaults:
    return {"noise_sigma": 0.1}


_BY_METHOD: dict[str, Callable[["Config", int], Defaults]] = {
    "tv_layer": _tv_layer,
    "pni": _pni,
    "adversarial": _adversarial,
    "sat": _sat,
    "awp": _awp,
    "augmix": _augmix,
    "noise": _noise,
}


def defaults(config: "Config", epochs: int = 1) -> Defaults:
    """The options of `NEEDS` that the method of a configuration reads, and their defaults.

    Args:
        config: as the user gave it.
        epochs: of the training, on which some depend.
    """
    smoothing = _smoothing(config) if shown(config) in _SMOOTHED_VIEWS else {}
    if config.method not in _BY_METHOD:
        return smoothing
    return {"view": "raw", **smoothing, **_BY_METHOD[config.method](config, epochs)}


def shown(config: "Config") -> str:
    """The name of the view that the network is shown: raw, blur, fix or iterative."""
    if config.method in _BY_METHOD:
        return config.view or "raw"
    return "raw" if config.method == "vanilla" else config.method


def check(config: "Config") -> None:
    """Raises for options that the method does not read, or that contradict each other."""
    read = defaults(config)
    got = f"got --method {config.method}"
    for name, needs in NEEDS.items():
        if getattr(config, name) is not None and name not in read:
            raise ValueError(f"{_flag(name)} needs {needs}, {got}")
    view = shown(config)
    if view != "iterative":
        if config.iterate == "lbi":
            raise ValueError(f"--iterate lbi needs --method iterative or --view iterative, {got}")
        if config.sparsity_from is not None:
            raise ValueError(f"--sparsity-from needs --method iterative or --view iterative, {got}")
    if view != "blur":
        for name in ("blur_sigma", "blur_kernel"):
            if getattr(config, name) != getattr(type(config), name):
                raise ValueError(f"{_flag(name)} needs --method blur or --view blur, {got}")
    if config.attack_through == "smoothing" and view not in _SMOOTHED_VIEWS:
        raise ValueError(
            f"--attack-through smoothing needs --view {' or '.join(_SMOOTHED_VIEWS)}, "
            f"got --view {view}"
        )
    if config.iterate == "lbi":
        _check_lbi(config)
    _check_layer(config)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_lbi(config: "Config") -> None:
    """Raises for what the paper's iteration, which each image carries along, cannot do."""
    if config.attack_through == "smoothing":
        raise ValueError(
            "--attack-through smoothing needs --iterate path: with lbi each image has its own level"
        )
    for name in ("stiffness", "speckle_area"):
        if getattr(config, name) is not None:
            raise ValueError(
                f"{_flag(name)} needs --iterate path: lbi has rigid ties and pixels as they are"
            )


def _check_layer(config: "Config") -> None:
    """Raises for levels of the smoothing layer that contradict its mode or each other."""
    if config.layer_mode == "learned" and config.layer_level in (0, 1):
        raise ValueError(
            "--layer-mode learned starts strictly inside (0, 1), got --layer-level "
            f"{config.layer_level}"
        )
    if None not in (config.layer_level, config.layer_level_from) and (
        config.layer_level_from > config.layer_level  # type: ignore[operator]
    ):
        raise ValueError(
            f"--layer-level-from {config.layer_level_from} must not be above --layer-level "
            f"{config.layer_level}"
        )
