"""A tiny trained run, and `python -m eval.main` on it."""

import pytest
from runs import Command, tiny  # noqa: F401 (a fixture)

from train import loop

# An evaluation that takes seconds.
QUICK = {
    "batch_size": 16,
    "attack_limit": 16,
    "pgd_steps": 2,
    "apgd_steps": 4,
    "queries": 5,
    "attacks": ("pgd", "square"),
    "samples": 2,
    "corruptions": ("gaussian_noise", "contrast"),
    "severities": (1, 2, 3, 4, 5),
    "suite": ("clean", "corruptions", "adversarial", "lowres", "frequency"),
}


@pytest.fixture(scope="session")
def run(tiny, tmp_path_factory):  # noqa: F811
    """The folder of a finished training."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    loop.run(tiny(out=folder, method="fix", epochs=2))
    return folder


@pytest.fixture(scope="session")
def command(caches, run):
    return Command(caches, "eval.main", {"run": run, **QUICK})
