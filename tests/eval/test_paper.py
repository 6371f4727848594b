import pytest

from eval import paper

CIFAR10 = {"dataset": "cifar10", "model": "resnet56", "method": "fix", "sparsity": 0.6}


def row(suite, name, **fields):
    return {"suite": suite, "name": name, "metric": "accuracy", "preprocess": "none", **fields}


# Typed from the paper's tables, not from our copy of them.
PRINTED = [
    (CIFAR10, row("corruptions", "gaussian_noise"), 23.91),
    (CIFAR10, row("corruptions", "shot_noise", preprocess="paper", sparsity=0.6), 83.93),
    (
        CIFAR10 | {"model": "vit_tiny"},
        row("corruptions", "impulse_noise", preprocess="paper"),
        72.96,
    ),
    (CIFAR10 | {"method": "tv_layer"}, row("corruptions", "gaussian_noise"), 49.97),
    (CIFAR10, row("adversarial", "pgd", epsilon=8 / 255, attacker="none"), 21.04),
    (
        CIFAR10,
        row("adversarial", "pgd", epsilon=0.06275, attacker="unaware", preprocess="paper"),
        48.51,
    ),
    (
        CIFAR10 | {"method": "tv_layer"},
        row("adversarial", "pgd", epsilon=8 / 255, attacker="unaware", preprocess="paper"),
        53.25,
    ),
    (
        CIFAR10 | {"method": "awp"},
        row("adversarial", "pgd", epsilon=8 / 255, attacker="none"),
        55.30,
    ),
    (CIFAR10, row("lowres", "1/4"), 30.00),
    (CIFAR10 | {"method": "blur"}, row("frequency", "low", radius=6), 93.14),
    (CIFAR10, row("clean", "clean", preprocess="paper", sparsity=0.6), 93.82),
    (CIFAR10 | {"method": "vanilla"}, row("clean", "clean"), 95.29),
    (
        CIFAR10 | {"method": "iterative"},
        row("clean", "clean", preprocess="paper", sparsity=0.8),
        94.54,
    ),
    (
        {"dataset": "imagenet100", "model": "resnet50", "method": "iterative", "sparsity": 0.3},
        row("corruptions", "impulse_noise", severity=2, preprocess="paper"),
        39.53,
    ),
    (CIFAR10, row("runtime", "ours: LBI + graph", metric="seconds", preprocess=None), 4.87),
    ({}, row("runtime", "NumPy LBI + LSQR", metric="seconds"), 171.79),
]


@pytest.mark.parametrize(("evaluation", "fields", "printed"), PRINTED)
def test_numbers_of_the_paper(evaluation, fields, printed):
    assert paper.lookup(evaluation, fields) == printed


OTHER_SETTINGS = [
    (CIFAR10, row("corruptions", "gaussian_noise", severity=3)),
    (CIFAR10, row("corruptions", "fog")),
    (CIFAR10, row("corruptions", "gaussian_noise", preprocess="soft", sparsity=0.6)),
    (CIFAR10, row("corruptions", "gaussian_noise", preprocess="auto")),
    (CIFAR10, row("adversarial", "pgd", epsilon=8 / 255, attacker="unaware", preprocess="auto")),
    (CIFAR10, row("lowres", "1/4", preprocess="soft")),
    (CIFAR10 | {"method": "vanilla"}, row("clean", "clean", preprocess="auto")),
    (CIFAR10, row("corruptions", "mean")),
    (CIFAR10, row("corruptions", "gaussian_noise", metric="mce")),
    (CIFAR10, row("corruptions", "gaussian_noise", preprocess="paper", sparsity=0.5)),
    (CIFAR10 | {"sparsity": 0.5}, row("corruptions", "gaussian_noise")),
    (CIFAR10 | {"model": "mlp"}, row("corruptions", "gaussian_noise")),
    (CIFAR10 | {"dataset": "shapes"}, row("corruptions", "gaussian_noise")),
    (CIFAR10, row("adversarial", "fgsm", epsilon=8 / 255, attacker="none")),
    (CIFAR10, row("adversarial", "pgd", epsilon=4 / 255, attacker="none")),
    (CIFAR10, row("adversarial", "pgd", epsilon=8 / 255, attacker="exact", preprocess="paper")),
    (CIFAR10, row("lowres", "1/4", preprocess="paper")),
    (CIFAR10, row("frequency", "low", radius=8)),
    (CIFAR10, row("clean", "clean", preprocess="paper", sparsity=0.7)),
    (CIFAR10, row("clean", "clean")),
    (CIFAR10, row("runtime", "ours: limit flow", metric="seconds")),
    (CIFAR10, row("something new", "x")),
]


@pytest.mark.parametrize(("evaluation", "fields"), OTHER_SETTINGS)
def test_another_setting_has_no_number(evaluation, fields):
    assert paper.lookup(evaluation, fields) is None


def test_backbone_and_caveats_name_the_papers_network():
    assert paper.backbone(CIFAR10) == "ResNet-18"
    assert paper.backbone(CIFAR10 | {"dataset": "imagenet100"}) == "ResNet-50"
    assert paper.backbone(CIFAR10 | {"dataset": "shapes"}) is None
    assert "ResNet-18, this run's is resnet56" in paper.caveats(CIFAR10, {"clean"})[0]
    assert paper.caveats(CIFAR10 | {"model": "resnet18"}, {"clean"}) == []
    assert paper.caveats(CIFAR10, {"runtime"}) == []


def test_caveat_about_epsilon_only_where_ours_is_in_pixels():
    resnet18 = CIFAR10 | {"model": "resnet18"}
    normalised = resnet18 | {"attack_options": {"epsilon_unit": "normalised"}}
    assert "normalised" in " ".join(paper.caveats(resnet18, {"adversarial"}))
    assert "normalised" not in " ".join(paper.caveats(normalised, {"adversarial"}))


def test_every_number_is_a_percentage_or_a_time():
    def numbers(tree):
        for value in tree.values():
            if isinstance(value, dict):
                yield from numbers(value)
            elif isinstance(value, float):
                yield value

    tables = paper.tables()
    suites = ("corruptions", "adversarial", "adversarial_defences", "lowres", "frequency", "clean")
    found = [number for suite in suites for number in numbers(tables[suite])]
    assert len(found) > 250
    assert all(0 < number < 100 for number in found)
