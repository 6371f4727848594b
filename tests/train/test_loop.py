import json
import signal

import numpy as np
import pytest
from safetensors.numpy import load_file

from train import loop, presets, run_folder
from train.metrics import MetricsWriter, read_rows
from train.progress import Progress


def weights(folder):
    return (folder / "weights.safetensors").read_bytes()


def checkpoint_steps(folder):
    latest = folder / "checkpoints" / "latest"
    return sorted(int(p.name) for p in latest.glob("*") if p.name.isdigit())


def after(folder, step):
    """Whether a checkpoint of this step or a later one is there."""
    return lambda: any(found >= step for found in checkpoint_steps(folder))


def test_a_run_leaves_everything_behind(tiny, tmp_path, capsys):
    summary = loop.run(tiny(out=tmp_path / "run", ema_decay=0.9, eval_every=1))
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} >= {
        *("config.json", "data.json", "metrics.jsonl", "summary.json", "tensorboard"),
        *("weights.safetensors", "best.safetensors", "checkpoints"),
    }
    rows = read_rows(folder / "metrics.jsonl")
    tests = [row for row in rows if "test/raw" in row]
    assert [row["step"] for row in tests] == [6, 12]
    assert all("test/smoothed" in row for row in tests)
    assert {"train/loss", "train/accuracy", "train/level"} <= rows[0].keys()
    assert any((folder / "tensorboard").iterdir())
    assert summary["clean"].keys() == summary["noisy"].keys() == {"raw", "smoothed"}
    printed = capsys.readouterr()
    assert "clean" in printed.out and "gaussian noise" in printed.out
    assert "96/192" in printed.err or "192/192 images" in printed.err
    assert load_file(folder / "weights.safetensors").keys() >= {"conv1.weight", "linear.weight"}
    # A finished run is not run again, and its weights start another one.
    before = weights(folder)
    assert loop.run(tiny(out=folder, ema_decay=0.9, eval_every=1)) == summary
    assert weights(folder) == before
    following = tiny(out=tmp_path / "next", init_from=folder / "weights.safetensors", epochs=1)
    assert loop.run(following) is not None


def test_another_configuration_is_refused(tiny, tmp_path):
    config = tiny(out=tmp_path, epochs=1, method="vanilla")
    loop.run(config)
    with pytest.raises(ValueError, match=r"(?s)another configuration:.*--seed: was 0, now 1"):
        loop.run(tiny(out=tmp_path, epochs=1, method="vanilla", seed=1))


def test_other_data_is_refused(tiny, tmp_path):
    rng = np.random.default_rng(0)
    for number in range(2):
        arrays = {
            f"{split}_{name}": values
            for split in ("train", "test")
            for name, values in (
                ("x", rng.integers(0, 256, (96, 8, 8, 3), np.uint8)),
                ("y", np.arange(96) % 4),
            )
        }
        np.savez(tmp_path / "data.npz", **arrays)
        config = tiny(
            dataset=f"npz:{tmp_path / 'data.npz'}", out=tmp_path / "run", epochs=1, method="blur"
        )
        if number == 0:
            loop.run(config)
        else:
            with pytest.raises(ValueError, match="other data"):
                loop.run(config)


def test_nan_stops_the_run_and_names_the_step(tiny, tmp_path):
    config = tiny(out=tmp_path, method="vanilla", learning_rate=1e30, checkpoint_every=1)
    with pytest.raises(loop.NonFiniteError, match=r"is (nan|inf) at step (\d+)") as raised:
        loop.run(config)
    step = int(str(raised.value).split("at step ")[1].split(";")[0])
    kept = checkpoint_steps(tmp_path)
    assert f"the checkpoint of step {kept[-1]} is kept" in str(raised.value)
    assert max(kept) <= step
    assert not (tmp_path / "weights.safetensors").exists()


def test_killed_runs_end_with_the_same_bits(command, tmp_path):
    options = {"epochs": 4, "checkpoint_every": 2, "ema_decay": 0.9, "method": "iterative"}
    code, _, err = command.run(out=tmp_path / "whole", **options)
    assert code == 0, err
    folder = tmp_path / "killed"
    # At the very start, in the middle of training, and around a save.
    command.kill(lambda: (folder / "config.json").exists(), out=folder, **options)
    command.kill(after(folder, 2), out=folder, **options)
    tmp = folder / "checkpoints" / "latest"
    command.kill(
        lambda: (
            any("tmp" in p.name for p in tmp.glob("*"))
            and max(checkpoint_steps(folder), default=0) > 5
        ),
        out=folder,
        **options,
    )
    command.interrupt(
        lambda: max(checkpoint_steps(folder), default=0) > 9, signal.SIGTERM, out=folder, **options
    )
    code, out, err = command.run(out=folder, **options)
    assert code == 0, err
    assert "gaussian noise" in out
    assert weights(folder) == weights(tmp_path / "whole")
    whole, killed = (
        [(row["step"], {k: v for k, v in row.items() if "per_second" not in k}) for row in rows]
        for rows in (
            read_rows(tmp_path / "whole" / "metrics.jsonl"),
            read_rows(folder / "metrics.jsonl"),
        )
    )
    # Where SIGTERM stopped it between two rows there is one more, and the next one has fewer steps.
    more = {step for step, _ in killed} - {step for step, _ in whole}
    assert len(more) <= 1
    split = more | {step + 1 for step in more}
    assert [row for row in killed if row[0] not in split] == [
        row for row in whole if row[0] not in split
    ]


def test_sigterm_saves_and_leaves(command, tmp_path):
    options = {"epochs": 50, "limit_train": 512, "method": "vanilla", "out": tmp_path}
    code, _, err = command.interrupt(after(tmp_path, 1), signal.SIGTERM, **options)
    assert code == 0, err
    steps = checkpoint_steps(tmp_path)
    assert f"stopped at step {steps[-1]} of 1600; the same command continues" in err
    assert not (tmp_path / "weights.safetensors").exists()


def test_one_run_at_a_time(tiny, tmp_path):
    with (
        run_folder.locked(tmp_path),
        pytest.raises(ValueError, match="another run is at work there"),
    ):
        loop.run(tiny(out=tmp_path))
    with run_folder.locked(tmp_path):
        pass


def test_errors_are_one_message(command, tmp_path):
    code, out, err = command.run(out=tmp_path, dataset="npz:/nowhere.npz")
    assert (code, out) == (1, "")
    assert err.strip() == "error: npz:/nowhere.npz: no such file /nowhere.npz"


def test_profile_writes_a_trace(tiny, tmp_path):
    loop.run(tiny(out=tmp_path, profile=True, method="vanilla", epochs=3))
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))


@pytest.mark.parametrize(
    "options",
    [
        {"method": "blur", "precision": "bfloat16"},
        {"method": "fix", "optimizer": "adamw", "label_smoothing": 0.1, "clip_norm": 1.0},
        {"method": "iterative", "iterate": "lbi", "lbi_steps": 2, "sparsity_from": 0.02},
    ],
    ids=["blur", "fix", "lbi"],
)
def test_other_forms_run(options, tiny, tmp_path):
    summary = loop.run(tiny(out=tmp_path, epochs=1, **options))
    assert 0 <= summary["clean"]["raw"] <= 1


def test_metrics_take_back_what_came_after_the_checkpoint(tmp_path):
    writer = MetricsWriter(tmp_path, 0)
    for step in (2, 4, 6):
        writer.write(step, {"loss": 1 / step}, prefix="train")
    writer.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "train/lo')
    MetricsWriter(tmp_path, 4).close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4]


def test_progress_prints_plain_lines(capsys):
    with Progress("work", 10, unit="things", done=4) as progress:
        progress.advance(6, note="loss 1.0")
    text = capsys.readouterr().err
    assert "work: 10/10 things" in text and "0:00 left, loss 1.0" in text
    with Progress("work", 10, unit="things", silent=True) as progress:
        progress.advance(10)
        progress.say("nothing")
    assert capsys.readouterr().err == ""


def test_default_folder_follows_from_the_options(tiny):
    one, same, other = (presets.fill(tiny(seed=seed)) for seed in (1, 1, 2))
    assert run_folder.choose(one) == run_folder.choose(same) != run_folder.choose(other)
