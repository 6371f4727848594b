"""The packages: what is in them, and that they work in environments that hold nothing else."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import isvs

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# What pip says when it reaches no index; of one that lacks a version, it lists those that there are.
NO_INDEX = ("(from versions: none)", "Max retries exceeded", "Connection to ")
# Of what is outside the base, the library's own tests need these.
FOR_TESTS = ("pillow", "tqdm", "scipy", "scikit-image", "pytest")
# What leans most on JAX and NumPy: loops, scatters, sorting by bits, custom gradients, shards.
TESTS = (
    *("test_components.py", "test_projection.py", "test_noise.py", "test_speckle.py"),
    *("test_transforms.py::test_shard_map", "test_lbi.py::test_adjoint_is_the_adjoint"),
    "test_smoothing.py::test_projection_gradient_equals_finite_differences",
)
TOO_LARGE = "test_components.py::test_large_images"

USER = """\
import jax
import jax.numpy as jnp

import isvs

images: jax.Array = jnp.zeros((2, 8, 8, 3))
reveal_type(isvs.smooth(images, 0.6))
reveal_type(isvs.encode(images))
isvs.smooth(images, solver="flow")
isvs.smoothe(images)
"""


def run(*command, cwd, check=True):
    """Runs a command away from this checkout and from the variables that would lead back to it."""
    environment = {k: v for k, v in os.environ.items() if k[:6] != "PYTHON" and k != "XLA_FLAGS"}
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**environment, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    if check:
        assert result.returncode == 0, result.stdout + result.stderr
    return result


def make_environment(folder, *requirements):
    """A new virtual environment with these packages and what they need, as its Python."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    result = run(*pip, "--retries", "1", *requirements, cwd=folder, check=False)
    unreachable = result.returncode and any(words in result.stderr for words in NO_INDEX)
    if unreachable and not os.environ.get("CI"):
        pytest.skip(f"pip reaches no package index: {result.stderr.splitlines()[-1]}")
    assert result.returncode == 0, result.stderr
    return python


def lowest(requirement):
    """A requirement at the lowest version that it allows."""
    name, version = re.fullmatch(r"([\w-]+)(?:>=|~=)([\d.]+)", requirement).groups()
    return f"{name}=={version}"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    with tarfile.open(folder / f"isvs-{isvs.__version__}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"isvs-{isvs.__version__}"


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """The wheel, built from the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=sdist)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def base(wheel, tmp_path_factory):
    """The Python of an environment with the wheel and its base dependencies."""
    return make_environment(tmp_path_factory.mktemp("base"), wheel)


def test_the_sdist_is_a_copy_of_the_project(sdist):
    tracked = {"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml"}
    assert tracked <= {path.name for path in sdist.iterdir()}
    for folder in ("isvs", "train", "eval", "tests", "docs"):
        expected = {path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py")}
        assert expected == {path.relative_to(sdist) for path in (sdist / folder).rglob("*.py")}
    unwanted = re.compile(r"__pycache__|\.pyc$|_cache|\.venv|egg-info|^runs$")
    assert not [path for path in sdist.rglob("*") if unwanted.search(path.name)]


def test_the_wheel_is_the_library(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    modules = {f"isvs/{path.name}" for path in (ROOT / "isvs").glob("*.py")}
    assert {name for name in names if ".dist-info/" not in name} == modules | {"isvs/py.typed"}
    assert wheel.name == f"isvs-{isvs.__version__}-py3-none-any.whl"
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_version_has_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+", isvs.__version__)
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT


def packages(extra):
    """The names of all packages of an extra, those of the extras that it takes in included."""
    for requirement in EXTRAS[extra]:
        if taken := re.fullmatch(r"isvs\[([\w,]+)\]", requirement):
            for name in taken[1].split(","):
                yield from packages(name)
        else:
            yield re.match(r"[\w-]+", requirement)[0]


def test_notebooks_leave_the_tensorflow_of_a_kernel_alone():
    assert {"tensorflow", "tensorflow-cpu", "tensorflow-datasets"} <= set(packages("train"))
    assert not [name for name in packages("notebooks") if name.startswith("tensorflow")]
    assert set(packages("eval")) == set(packages("notebooks")) - {"ipykernel", "nbclient"} | set(
        packages("tfds")
    )


def test_the_base_is_enough_for_the_library(base, tmp_path):
    images = np.random.default_rng(0).random((2, 9, 12, 3), np.float32)
    np.save(tmp_path / "images.npy", images)
    code = (
        "import sys, numpy, isvs; print(isvs.__version__, isvs.__file__);"
        "numpy.save('smooth.npy', isvs.smooth(numpy.load('images.npy'), 0.5));"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    version, modules = run(base, "-c", code, cwd=tmp_path).stdout.splitlines()
    assert version.startswith(isvs.__version__) and str(base.parents[1]) in version
    expected = isvs.smooth(images, 0.5)
    np.testing.assert_allclose(np.load(tmp_path / "smooth.npy"), expected, atol=1e-6)
    assert not {"flax", "optax", "tensorflow", "PIL", "tqdm", "tyro", "train"} & set(
        modules.split()
    )


def test_the_command_line_names_the_extra(base, tmp_path):
    shown = run(base, "-m", "isvs", "--help", cwd=tmp_path)
    assert "examples:" in shown.stdout and not shown.stderr
    result = run(base, "-m", "isvs", "smooth", "x.png", "-o", "y.png", cwd=tmp_path, check=False)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1 and "pip install 'isvs[cli]'" in result.stderr


def test_importing_takes_less_than_two_seconds_beyond_jax(base, tmp_path):
    code = (
        "import time, jax, jax.numpy; start = time.perf_counter(); import isvs;"
        "print(time.perf_counter() - start)"
    )
    seconds = [float(run(base, "-c", code, cwd=tmp_path).stdout) for _ in range(2)]
    assert min(seconds) < 2, seconds


def test_users_see_the_types(base, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    options = ["--strict", "--config-file=", "--cache-dir=cache", "--python-executable", base]
    command = [sys.executable, "-m", "mypy", *options, "user.py"]
    said = run(*command, cwd=tmp_path, check=False).stdout
    lines = {int(match[1]): match[2] for match in re.finditer(r"user.py:(\d+): (.*)", said)}
    assert lines.keys() == {7, 8, 9, 10}, said
    assert re.search(r'Revealed type is "jax\.[\w.]*Array"', lines[7]), said
    assert 'Revealed type is "isvs.scale_space.ScaleSpace"' in lines[8], said
    assert '"solver"' in lines[9] and '"smoothe"' in lines[10], said


def test_the_lowest_versions_are_enough(wheel, tmp_path):
    known = {re.split("[>~]=", text)[0]: text for extra in EXTRAS.values() for text in extra}
    wanted = [*PROJECT["dependencies"], *(known[name] for name in FOR_TESTS)]
    python = make_environment(tmp_path / "lowest", wheel, *map(lowest, wanted))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tests" / "isvs", tmp_path / "tests" / "isvs")
    for name in ("conftest.py", "oracles.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    tests = [f"tests/isvs/{name}" for name in TESTS]
    options = ["-q", "-p", "no:cacheprovider", f"--deselect=tests/isvs/{TOO_LARGE}"]
    result = run(python, "-m", "pytest", *options, *tests, cwd=tmp_path)
    assert " passed" in result.stdout and " skipped" not in result.stdout
