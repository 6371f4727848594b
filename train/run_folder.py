"""The folder of a run: its configuration, what it was fed, and what came out."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from train.config import Config, differences

WEIGHTS = "weights.safetensors"
BEST_WEIGHTS = "best.safetensors"
_CONFIG, _DATA, _SUMMARY, _LOCK = "config.json", "data.json", "summary.json", ".lock"


def choose(config: Config) -> Path:
    """`--out`, or a folder under runs/ whose name follows from the options."""
    if config.out is not None:
        return config.out
    data = config.dataset.replace(":", "-").replace("/", "-")
    return Path("runs") / f"{data}-{config.model}-{config.method}-{config.digest()}"


def check_config(folder: Path, config: Config) -> None:
    """Raises if the folder belongs to a run with other options; the error says which."""
    path = folder / _CONFIG
    if not path.is_file():
        return
    old = Config.from_json(path.read_text(encoding="utf-8"), str(path))
    changed = differences(old.identity(), config.identity())
    if changed:
        raise ValueError(
            f"{folder} holds a run with another configuration:\n  "
            + "\n  ".join(changed)
            + "\nRepeat its options to continue it, or give another --out."
        )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps a second run out of the folder; the system unlocks it however this one ends.

    Raises:
        ValueError: if a run is at work in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(f"{folder}: another run is at work there") from error
        yield


def check_data(folder: Path, fingerprint: str) -> None:
    """Raises if the folder's run was begun with other data."""
    data = folder / _DATA
    if data.is_file():
        old = json.loads(data.read_text(encoding="utf-8"))["fingerprint"]
        if old != fingerprint:
            raise ValueError(
                f"{folder} holds a run on other data: its fingerprint was {old}, now {fingerprint}"
            )


def claim(folder: Path, config: Config, fingerprint: str) -> None:
    """Writes the configuration and the data's fingerprint: from now on the folder is this run's."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / _DATA, json.dumps({"fingerprint": fingerprint}, indent=2) + "\n")
    _write(folder / _CONFIG, config.to_json())


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Marks a run as finished."""
    _write(folder / _SUMMARY, json.dumps(summary, indent=2) + "\n")


def read_summary(folder: Path) -> dict[str, Any] | None:
    """What a finished run wrote, None if it is not finished."""
    path = folder / _SUMMARY
    if not path.is_file() or not (folder / WEIGHTS).is_file():
        return None
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return summary


def _write(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
