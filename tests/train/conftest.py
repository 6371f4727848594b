"""`python -m train.main` with the options of a tiny run."""

import pytest
from runs import TINY, Command, caches, compile_once, tiny  # noqa: F401 (fixtures)


@pytest.fixture(scope="session")
def command(caches):  # noqa: F811
    return Command(caches, "train.main", {**TINY, "cache_dir": caches["codes"]})
