"""The notebooks: they run with small settings, and what is stored in them is fit to be published."""

import re
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
NAMES = ["1_scale_space", "2_train_and_evaluate", "3_robustness", "4_your_own_code"]
LARGEST = 600_000  # bytes
# Folders of somebody's machine, and what ought to have been mended before it was stored.
UNWANTED = re.compile(r"/(?:work|tmp|root|home|Users)/|Warning\b|Traceback")


class Here(AsyncKernelManager):
    """Starts kernels with this interpreter, whatever kernels the machine has."""

    @property
    def kernel_spec(self):
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name="Python 3", language="python")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The folder they run in: one finds the network that another has trained, and its compiled programs."""
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture
def small(shared, monkeypatch):
    """Settings for their kernels; code that runs for moments is not worth optimising."""
    monkeypatch.setenv("ISVS_QUICK", "1")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(shared / "compiled"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    # Of the tests' own process, and nothing to kernels.
    monkeypatch.delenv("MPLBACKEND", raising=False)


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def test_all_are_there():
    assert [path.stem for path in NOTEBOOKS] == NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path, shared, small):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=600,
        kernel_manager_class=Here,
        resources={"metadata": {"path": str(shared)}},
    ).execute()
    assert not [output for output in outputs(notebook) if output.output_type == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < LARGEST
    stored = outputs(notebook)
    assert any(kind.startswith("image/") for output in stored for kind in output.get("data", ()))
    # Nothing on standard error: progress is cleared when it is over.
    assert not [output for output in stored if output.get("name") == "stderr"]
    for output in stored:
        texts = [output.get("text", ""), *map(str, output.get("data", {}).values())]
        assert not [match[0] for text in texts for match in UNWANTED.finditer(text)]
    assert not [cell.id for cell in notebook.cells if cell.metadata]  # such as times of execution


def test_all_install_alike():
    first = [
        next(
            cell.source
            for cell in nbformat.read(path, as_version=4).cells
            if cell.cell_type == "code"
        )
        for path in NOTEBOOKS
    ]
    assert len(set(first)) == 1
    assert "%pip install" in first[0]
