"""The public face of the library: names, what importing it costs, and the examples in its docstrings."""

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import isvs


def test_public_names():
    assert set(isvs.__all__) == {
        "smooth",
        "encode",
        "ScaleSpace",
        "lbi_path",
        "LBIPath",
        "connected_components",
        "component_means",
        "Flow",
        "LBI",
        "AutoLevel",
        "Speckle",
        "noise_level",
        "remove_speckle",
    }
    assert all(getattr(isvs, name).__doc__ for name in isvs.__all__)


def test_importing_it_brings_jax_and_numpy_only():
    code = (
        "import sys, jax, numpy; before = set(sys.modules); import isvs;"
        "print({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert set(out.strip("{}\n").replace("'", "").split(", ")) <= {"isvs", "jax", "jaxlib", "numpy"}


@pytest.mark.parametrize(
    "name",
    [m.name for m in pkgutil.iter_modules(isvs.__path__, "isvs.") if m.name != "isvs.__main__"],
)
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
