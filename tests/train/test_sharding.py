import json
import signal
import socket
import time

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from train.sharding import Layout

# One epoch: rounding differs with the order of sums, and training doubles such differences.
OPTIONS = {"epochs": 1, "method": "iterative", "warmup_epochs": 0.5}


def assert_close(one, other):
    ours, theirs = (load_file(folder / "weights.safetensors") for folder in (one, other))
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=2e-4, rtol=2e-3, err_msg=name)
    summaries = (json.loads((folder / "summary.json").read_text()) for folder in (one, other))
    clean = [summary["clean"]["raw"] for summary in summaries]
    assert abs(clean[0] - clean[1]) <= 2 / 32


@pytest.fixture(scope="module")
def alone(tmp_path_factory, command):
    """A run on one device."""
    folder = tmp_path_factory.mktemp("alone")
    code, _, err = command.run(out=folder, **OPTIONS)
    assert code == 0, err
    return folder


def test_eight_devices_are_one(command, alone, tmp_path):
    code, _, err = command.run(devices=8, out=tmp_path, **OPTIONS)
    assert code == 0, err
    assert_close(alone, tmp_path)


def test_eight_devices_carry_the_iteration(command, tmp_path):
    options = {**OPTIONS, "iterate": "lbi", "lbi_steps": 5, "sparsity_from": 0.02}
    for devices, name in ((1, "one"), (8, "eight")):
        code, _, err = command.run(devices=devices, out=tmp_path / name, **options)
        assert code == 0, err
    assert_close(tmp_path / "one", tmp_path / "eight")


def start_two(command, **options):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    together = {"coordinator": f"localhost:{port}", "num_processes": 2}
    return [command.start(process_id=number, **together, **options) for number in range(2)]


def finish(processes):
    try:
        results = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, err) in zip(processes, results, strict=True):
        assert process.returncode == 0, err
    return results


def test_two_processes_are_one(command, alone, tmp_path):
    results = finish(start_two(command, out=tmp_path, **OPTIONS))
    assert "gaussian noise" in results[0][0] and "gaussian noise" not in results[1][0]
    assert_close(alone, tmp_path)


def test_two_processes_stop_together(command, tmp_path):
    options = {**OPTIONS, "epochs": 200, "warmup_epochs": 1}
    processes = start_two(command, out=tmp_path, **options)
    latest = tmp_path / "checkpoints" / "latest"
    deadline = time.monotonic() + 200
    while not (latest / "6").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    processes[1].send_signal(signal.SIGTERM)  # one host hears it, both leave
    results = finish(processes)
    assert "the same command continues" in results[0][1]


def test_batches_must_split_evenly(command, tmp_path):
    code, _, err = command.run(devices=8, out=tmp_path, **{**OPTIONS, "batch_size": 12})
    assert code == 1
    assert "--batch-size: expected a multiple of the 8 devices, got 12" in err


def test_layout_places_arrays():
    layout = Layout()
    layout.check_batch("--batch-size", 4 * layout.mesh.size)
    tree = {"key": jax.random.key(3), "x": np.arange(6).reshape(2, 3)}
    placed = layout.replicate(tree)
    assert (jax.random.key_data(placed["key"]) == jax.random.key_data(tree["key"])).all()
    assert (placed["x"] == tree["x"]).all() and placed["x"].sharding.is_fully_replicated
    batch = layout.shard({"index": np.arange(4 * layout.mesh.size, dtype=np.int32)})
    assert batch["index"].shape == (4 * layout.mesh.size,)
