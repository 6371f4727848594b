import dataclasses
import json

import pytest

from train import methods, presets
from train.config import Config, differences
from train.data.sources import CHOICES
from train.main import parse

COMMON = (
    "--dataset shapes --data-dir DIR --model resnet18 --method fix --sparsity 0.3 --epochs 3 "
    "--batch-size 64 --learning-rate 0.05 --seed 7 --out OUT --init-from w.safetensors "
    "--limit-train 100 --limit-test 50 --precision bfloat16"
)


def test_common_options():
    config = parse(COMMON.split())
    assert (config.dataset, config.model, config.method) == ("shapes", "resnet18", "fix")
    assert (config.sparsity, config.epochs, config.batch_size, config.seed) == (0.3, 3, 64, 7)
    assert (str(config.out), str(config.init_from)) == ("OUT", "w.safetensors")
    assert (config.limit_train, config.limit_test, config.precision) == (100, 50, "bfloat16")


def test_json_round_trip():
    for config in (Config(), parse(COMMON.split()), presets.fill(Config(method="blur"))):
        assert Config.from_json(config.to_json()) == config


def test_config_file_repeats_a_run_and_options_change_it(tmp_path):
    file = tmp_path / "config.json"
    original = presets.fill(parse(COMMON.split()))
    file.write_text(original.to_json())
    assert parse(["--config", str(file)]) == original
    changed = parse([f"--config={file}", "--epochs", "9"])
    assert changed == dataclasses.replace(original, epochs=9)


@pytest.mark.parametrize("method", methods.NAMES)
@pytest.mark.parametrize("dataset", [choice.split(":")[0] for choice in CHOICES])
def test_recipes_fill_every_data_set(dataset, method):
    dataset = dataset if dataset in CHOICES else f"{dataset}:name"
    config = presets.fill(Config(dataset=dataset, method=method))
    for name in ("model", "epochs", "batch_size", "learning_rate", "sparsity", "noise"):
        assert getattr(config, name) is not None
    assert (config.sparsity_from is not None) == (method == "iterative")
    assert presets.fill(config) == config


def test_recipes_leave_what_was_given():
    config = presets.fill(Config(epochs=1, learning_rate=0.3, sparsity=0.2))
    assert (config.epochs, config.learning_rate, config.sparsity) == (1, 0.3, 0.2)
    assert config.sparsity_from == pytest.approx(0.1)
    assert presets.fill(Config(model="vit_tiny")).optimizer == "adamw"
    assert presets.fill(Config(iterate="lbi", epochs=100)).lbi_steps == 30


def test_smoothing_options_are_read_by_what_smooths_its_view():
    given = parse(["--method=noise", "--view=fix", "--stiffness=5", "--speckle-area=3"])
    assert (given.stiffness, given.speckle_area, given.speckle_contrast) == (5.0, 3, None)
    filled = presets.fill(given)
    assert (filled.stiffness, filled.speckle_area, filled.speckle_contrast) == (5.0, 3, 0.15)
    chosen = presets.fill(Config(speckle_area=1, speckle_contrast=0.3))
    assert (chosen.stiffness, chosen.speckle_contrast) == (None, 0.3)


def test_no_infinity_reaches_the_file():
    """Infinite is the same as left out, and so is the run: one name, and JSON that others can read."""
    rigid = parse(["--stiffness", "inf"])
    assert rigid == Config() and rigid.digest() == Config().digest()
    assert parse(["--stiffness", "inf", "--iterate", "lbi"]) == Config(iterate="lbi")
    assert json.loads(rigid.to_json(), parse_constant=pytest.fail)["stiffness"] is None
    assert Config(stiffness=5.0).digest() != Config().digest()


def test_recipes_of_methods():
    sat = presets.fill(Config(method="sat", epochs=100))
    assert (sat.sat_start, sat.trades_beta, sat.attack_steps, sat.view) == (70, 6.0, 10, "raw")
    assert presets.fill(Config(method="sat", trades_beta=0.0)).attack_steps is None
    assert presets.fill(Config(method="sat", epochs=90)).sat_start == 63
    assert presets.fill(Config(method="awp")).awp_gamma == 0.01
    assert presets.fill(Config(method="awp", trades_beta=6.0)).awp_gamma == 0.005
    smoothed = presets.fill(Config(method="pni", view="iterative", sparsity=0.5))
    assert (smoothed.sparsity_from, smoothed.attack_steps) == (0.25, 7)
    # A method's configuration holds nothing that another method reads.
    vanilla = presets.fill(Config(method="vanilla"))
    assert all(getattr(vanilla, name) is None for name in methods.options.NEEDS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "cifar11"}, "choose one of shapes, cifar10"),
        ({"dataset": "shapes:x"}, "choose one of shapes"),
        ({"dataset": "npz:"}, "choose one of"),
        ({"model": "resnet19"}, "choose one of resnet18"),
        ({"model": "resnet20", "stem": "3x3"}, "no choice of stem"),
        ({"method": "magic"}, "choose one of vanilla, blur, fix, iterative"),
        ({"sparsity": 1.5}, r"level in \[0, 1\], got 1.5"),
        ({"epochs": 0}, "--epochs: expected 1 or more, got 0"),
        ({"learning_rate": float("nan")}, "--learning-rate: expected above 0"),
        ({"blur_kernel": 4}, "odd"),
        ({"method": "fix", "iterate": "lbi"}, "--iterate lbi needs --method iterative"),
        ({"method": "fix", "sparsity_from": 0.3}, "--sparsity-from needs --method iterative"),
        ({"lbi_steps": 3}, "--lbi-steps needs --iterate lbi"),
        ({"stiffness": -1.0}, r"--stiffness: expected a number in \[0, 10000\] or inf, got -1"),
        ({"stiffness": 2e4}, r"in \[0, 10000\] or inf, got 20000"),
        ({"stiffness": float("nan")}, "or inf, got nan"),
        ({"speckle_area": 0}, "--speckle-area: expected 1 or more, got 0"),
        ({"speckle_area": 2, "speckle_contrast": 15.0}, r"--speckle-contrast: .* \(0, 1\], got 15"),
        ({"speckle_contrast": 0.2}, "--speckle-contrast needs .*, and --speckle-area, got"),
        ({"method": "vanilla", "stiffness": 5.0}, "--stiffness needs --method or --view fix or"),
        ({"method": "noise", "speckle_area": 2}, "--speckle-area needs .* got --method noise"),
        ({"iterate": "lbi", "stiffness": 5.0}, "--stiffness needs --iterate path: lbi has rigid"),
        ({"iterate": "lbi", "speckle_area": 2}, "--speckle-area needs --iterate path"),
        ({"sparsity": 0.2, "sparsity_from": 0.3}, "must not be above --sparsity"),
        ({"epochs": 2, "warmup_epochs": 2.0}, "must be below --epochs"),
        ({"epochs": 2, "method": "sat", "sat_start": 2}, "--sat-start 2 must be below --epochs 2"),
        ({"epochs": 2, "method": "awp", "awp_warmup": 3.0}, "must be below --epochs"),
        ({"num_processes": 2}, "need --coordinator"),
        ({"method": "fix", "view": "raw"}, "--view needs a method that is not itself a view"),
        ({"method": "noise", "sparsity_from": 0.1}, "or --view iterative, got --method noise"),
        ({"method": "noise", "iterate": "lbi"}, "--iterate lbi needs .* --view iterative"),
        ({"method": "noise", "attack_steps": 3}, "--attack-steps needs --method adversarial"),
        ({"method": "sat", "trades_beta": 0.0, "attack_step": 0.1}, "--trades-beta above 0"),
        ({"method": "pni", "trades_beta": 1.0}, "--trades-beta needs --method adversarial, awp"),
        ({"method": "adversarial", "attack_through": "smoothing"}, "got --view raw"),
        ({"method": "tv_layer", "layer": "isvs", "tv_form": "sharp"}, "needs .* --layer tv"),
        ({"method": "tv_layer", "layer_level": 0.5}, "--layer-level needs .* --layer isvs"),
        ({"method": "fix", "blur_kernel": 5}, "--blur-kernel needs --method blur or --view blur"),
        ({"method": "noise", "blur_sigma": 1.0}, "--blur-sigma needs --method blur or --view"),
        (
            {"method": "tv_layer", "layer": "isvs", "layer_mode": "learned", "layer_level": 1.0},
            r"strictly inside \(0, 1\), got --layer-level 1",
        ),
        ({"method": "augmix", "augmix_severity": 11.0}, r"strength in \[0.1, 10\], got 11"),
        ({"method": "adversarial", "attack_epsilon": 8.0}, r"in \(0, 1\], got 8"),
    ],
)
def test_bad_options_fail_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        Config(**options)


def test_unknown_options_fail(capsys):
    with pytest.raises(SystemExit):
        parse(["--learning-rat", "1"])
    assert "learning-rate" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"file.json: unknown options \['epoch'\]; known are"):
        Config.from_json('{"epoch": 3}', "file.json")
    with pytest.raises(ValueError, match="epochs: expected"):
        Config.from_json('{"epochs": "3"}')
    with pytest.raises(ValueError, match="not JSON"):
        Config.from_json("{")


def test_help_shows_choices_and_defaults(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    for word in ("--sparsity-from", "{path,lbi}", "vanilla|blur|fix|iterative", "default: 0.9"):
        assert word in text


def test_differences_name_what_changes_the_result(tmp_path):
    old, new = Config(), Config(seed=3, out=tmp_path, num_workers=9)
    assert differences(old.identity(), new.identity()) == ["--seed: was 0, now 3"]
    assert old.digest() != new.digest()
    assert "out" not in json.loads(json.dumps(old.identity()))
