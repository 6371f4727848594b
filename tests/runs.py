"""Small runs of the commands, in this process or as processes of their own that can be killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from train.config import Config

ROOT = Path(__file__).parents[1]
# A model, a data set and a schedule that train in seconds.
TINY = {
    "model": "_tiny",
    "limit_train": 96,
    "limit_test": 32,
    "batch_size": 16,
    "eval_batch_size": 32,
    "epochs": 2,
    "num_workers": 0,
}


@pytest.fixture(scope="session")
def tiny(caches):
    """Makes the configuration of a tiny run."""
    return lambda **options: Config(**{**TINY, "cache_dir": caches["codes"], **options})


class Command:
    """A module of the project as a command, with default options."""

    def __init__(self, caches, module, defaults):
        self._caches, self._module, self._defaults = caches, module, defaults

    def start(self, *, devices=1, **options):
        arguments = []
        for name, value in {**self._defaults, **options}.items():
            values = value if isinstance(value, tuple) else (value,)
            arguments += [f"--{name.replace('_', '-')}", *map(str, values)]
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self._caches["compiled"]),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        }
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", self._module, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **options):
        with self.start(**options) as process:
            try:
                out, err = process.communicate(timeout=600)
            finally:
                process.kill()
        return process.returncode, out, err

    def interrupt(self, when, number, **options):
        """Sends a signal as soon as a condition holds; fails if the run ends before."""
        process = self.start(**options)
        deadline = time.monotonic() + 300
        while not when():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                out, err = process.communicate()
                raise AssertionError(f"the run ended too early:\n{out}\n{err}")
            time.sleep(0.005)
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def kill(self, when, **options):
        return self.interrupt(when, signal.SIGKILL, **options)
