"""The tree is formatted, linted and typed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command", ["ruff check .", "ruff format --check .", "mypy"], ids=["lint", "format", "types"]
)
def test_clean(command):
    result = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
