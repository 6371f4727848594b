"""`python -m train.main` with the options of a tiny run."""

import pytest
from runs import TINY, Command, tiny  # noqa: F401 (a fixture)


@pytest.fixture(scope="session")
def command(caches):
    return Command(caches, "train.main", {**TINY, "cache_dir": caches["codes"]})
