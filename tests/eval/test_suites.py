"""What the suites do to images, what they conclude from answers, and what they flag."""

import dataclasses
import fractions
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvs
from eval import corruptions, preprocessing, published
from eval.options import ATTACKERS, Options
from eval.results import Cell, Results, accuracy
from eval.subject import open_subject
from eval.suites import adversarial, corrupted, lowres
from eval.suites.base import Found, Judge, columns, image_keys, named_rightly, pixels


@pytest.fixture(scope="module")
def options(run):
    return Options(run=run, batch_size=16).filled()


@pytest.fixture(scope="module")
def subject(options):
    return open_subject(options)


@pytest.fixture(scope="module")
def images(subject):
    return pixels(jnp.asarray(subject.dataset.test.images[:4]))


@pytest.mark.parametrize(("size", "scale"), [(32, "1/4"), (32, "1/2"), (30, "1/7"), (7, "1/2")])
def test_low_resolution_takes_the_nearest_pixel_both_ways(size, scale):
    image = np.random.default_rng(0).random((size, size + 1, 2)).astype(np.float32)
    found = np.asarray(lowres.low_resolution(image[None], fractions.Fraction(scale)))[0]
    factor = float(fractions.Fraction(scale))
    rows, columns = int(size * factor), int((size + 1) * factor)
    small = np.zeros((rows, columns, 2), np.float32)
    for i in range(rows):
        for j in range(columns):
            small[i, j] = image[int(i * size / rows), int(j * (size + 1) / columns)]
    for i in range(size):
        for j in range(size + 1):
            expected = small[int(i * rows / size), int(j * columns / (size + 1))]
            np.testing.assert_array_equal(found[i, j], expected)


@pytest.mark.parametrize("text", ["0", "2", "1/0", "half"])
def test_a_scale_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"expected a fraction in \(0, 1\]"):
        lowres.parse_scale(text)


def test_keys_depend_on_the_row_alone():
    together = jax.random.key_data(image_keys(0, "x", jnp.arange(6)))
    apart = jax.random.key_data(image_keys(0, "x", jnp.array([4])))
    np.testing.assert_array_equal(together[4:5], apart)
    other = jax.random.key_data(image_keys(0, "y", jnp.arange(6)))
    assert (together != other).any(axis=1).all()


def test_the_judge_preprocesses_before_the_network(subject, options, monkeypatch):
    # In place of the smoothing, what is cheap to compile and tells its arguments apart.
    shades = {
        (subject.sparsity, math.inf, None): 3,
        (0.4, 5.0, isvs.Speckle()): 6,
        ("auto", math.inf, None): 8,
    }

    def shade(images, sparsity, *, stiffness=math.inf, speckle=None):
        return images * shades[sparsity, stiffness, speckle] / 9

    def logits(self, weights, key, images):
        """Names the brightness in ninths."""
        return -jnp.abs(9 * images.mean((1, 2, 3))[:, None] - jnp.arange(10))

    monkeypatch.setattr(isvs, "smooth", shade)
    monkeypatch.setattr(type(subject), "logits", logits)
    judge, keys = Judge(subject, draws=1), image_keys(0, "x", jnp.arange(4))
    cells = columns(subject, dataclasses.replace(options, preprocess=preprocessing.NAMES), "x", "y")
    assert [cell.sparsity for cell in cells] == [None, subject.sparsity, 0.4, None]
    labels = jnp.array([9, 3, 6, 8])
    found = judge.each(cells, keys, jnp.ones((4, 2, 2, 3)), labels)
    assert [found[cell.key].tolist() for cell in cells] == np.eye(4, dtype=bool).tolist()


def test_levels_are_read_in_the_way_of_the_method(subject, images, monkeypatch):
    soft = dataclasses.replace(subject.method, stiffness=2.0, speckle=isvs.Speckle(area=1))
    own = dataclasses.replace(subject, method=soft)
    small = images[:1, :8, :8]

    @jax.jit
    def both(images):
        return own.defend(images), own.defend_at(own.scale_space(images), subject.sparsity)

    np.testing.assert_allclose(*both(small), atol=1e-6)
    rigid = isvs.encode(small).at(subject.sparsity)
    assert jnp.abs(both(small)[1] - rigid).max() > 1e-3
    # Other levels are read, and not solved for.
    space = own.scale_space(small)
    expected = isvs.smooth(small, 0.3, stiffness=2.0, speckle=isvs.Speckle(area=1))
    for name in ("encode", "smooth"):
        monkeypatch.delattr(isvs, name)
    np.testing.assert_allclose(own.defend_at(space, 0.3), expected, atol=1e-6)


def test_random_networks_are_judged_by_their_mean_answer():
    def logits(key, images):
        # Nine passes of ten say 0 by a little, the tenth says 1 with certainty.
        sure = jax.random.uniform(key) < 0.5
        return jnp.where(sure, jnp.array([0.0, 50.0]), jnp.array([0.2, 0.0]))[None]

    keys = jax.random.split(jax.random.key(0), 1)
    found = named_rightly(logits, keys, jnp.zeros((1, 2, 2, 1)), jnp.array([1]), draws=64)
    assert found.tolist() == [True]


def test_what_attackers_differentiate(subject, images):
    """Forward they are one; backward, the exact one averages over regions, the other does not."""
    networks, key = adversarial.networks(subject, "paper"), jax.random.key(0)
    smoothed = isvs.smooth(images, subject.sparsity)
    cotangent = jnp.linspace(-1, 1, 40, dtype=jnp.float32).reshape(4, 10)

    def gradient(name, at):
        logits, pull = jax.vjp(lambda x: networks[name](subject.weights, key, x), at)
        return logits, pull(cotangent)[0]

    bare_logits, bare = gradient("none", smoothed)
    exact_logits, exact = gradient("exact", images)
    straight_logits, straight = gradient("straight-through", images)
    np.testing.assert_allclose(exact_logits, bare_logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(straight_logits, bare_logits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(straight, bare, rtol=1e-3, atol=1e-5)
    down, right = isvs.encode(images).support(subject.sparsity)
    regions = isvs.connected_components(~down, ~right)
    np.testing.assert_allclose(exact, isvs.component_means(bare, regions), rtol=1e-3, atol=1e-5)
    assert float(jnp.abs(exact - straight).max()) > 1e-4


def test_the_exact_attacker_has_gradients_through_automatic_smoothing(subject, images):
    network, key = adversarial.networks(subject, "auto")["exact"], jax.random.key(0)
    # A clean image is left alone, and would show nothing.
    noisy = images + 0.1 * jax.random.normal(key, images.shape)

    @jax.jit
    def gradients(x):
        def loss(x, logits):
            return jnp.sum(logits(subject.weights, key, x) * jnp.arange(10))

        return jax.grad(loss)(x, network), jax.grad(loss)(x, subject.logits)

    exact, bare = gradients(noisy)
    assert jnp.isfinite(exact).all()
    assert (jnp.abs(exact).max((1, 2, 3)) > 0).all()
    assert float(jnp.abs(exact - bare).max()) > 1e-4


def signs(cell, *, right, zero=0, bad=0, rising=0, n=100):
    first = np.arange(n)
    return {
        cell.key: first < right,
        "zero_gradient": first < zero,
        "bad_gradient": first < bad,
        "still_rising": first < rising,
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"right": 40}, ()),
        ({"right": 40, "zero": 5}, ("zero gradients",)),
        ({"right": 40, "bad": 1}, ("nan gradients",)),
        ({"right": 40, "rising": 10}, ("loss still rising",)),
        ({"right": 0, "rising": 10}, ()),  # they fell in the end
    ],
)
def test_flags_of_one_attack(changes, expected, options):
    cell = Cell("adversarial", "pgd", epsilon=8 / 255, attacker="exact", preprocess="paper")
    assert adversarial._flags(options)(cell, signs(cell, **changes), {}) == expected


def test_survivors_of_a_huge_epsilon_are_flagged(options):
    flags = adversarial._flags(options)
    cell = Cell("adversarial", "pgd", epsilon=64 / 255, attacker="exact", preprocess="paper")
    assert flags(cell, signs(cell, right=20), {}) == ("does not fall to zero",)
    assert flags(cell, signs(cell, right=2), {}) == ()
    unaware = cell._replace(attacker="unaware")
    assert flags(unaware, signs(unaware, right=20), {}) == ()


def test_a_black_box_that_beats_gradients_is_flagged(options):
    flags = adversarial._flags(options)
    cell = Cell("adversarial", "square", epsilon=8 / 255, attacker="black-box", preprocess="paper")
    white = cell._replace(name="pgd", attacker="exact")
    before = {white.key: np.arange(100) < 50}
    assert flags(cell, signs(cell, right=30), before) == ("black box beats white box",)
    assert flags(cell, signs(cell, right=60), before) == ()


def test_a_black_box_is_compared_behind_its_own_defence(options):
    flags = adversarial._flags(options)
    cell = Cell("adversarial", "square", epsilon=8 / 255, attacker="black-box", preprocess="soft")
    other = cell._replace(name="pgd", attacker="exact", preprocess="paper")
    assert flags(cell, signs(cell, right=30), {other.key: np.ones(100, bool)}) == ()


def cells_of(subject, options, preprocess, attackers=ATTACKERS):
    few = dataclasses.replace(
        options,
        preprocess=preprocess,
        attackers=attackers,
        attacks=("pgd", "square"),
        epsilons=(8,),
        sanity_epsilon=0,
    )
    tasks = adversarial.tasks(subject, few, judge=None)
    return [[(c.name, c.attacker, c.preprocess) for c in task.cells] for task in tasks]


def test_the_bare_network_is_attacked_once_for_all_defences(subject, options):
    found = cells_of(subject, options, ("none", "paper", "auto"))
    shared = [("none", "none"), ("unaware", "paper"), ("unaware", "auto")]
    facing = [(who, one) for one in ("paper", "auto") for who in ("straight-through", "exact")]
    assert found == [
        [("pgd", *who) for who in shared],
        *([("pgd", *who)] for who in facing),
        [("square", *who) for who in shared],
        [("square", "black-box", "paper")],
        [("square", "black-box", "auto")],
    ]


def test_bare_rows_are_written_only_if_asked_for(subject, options):
    found = cells_of(subject, options, ("soft",), ("unaware", "exact"))
    unaware = [[("pgd", "unaware", "soft")], [("square", "unaware", "soft")]]
    assert found == [unaware[0], [("pgd", "exact", "soft")], unaware[1]]
    assert cells_of(subject, options, ("soft",), ("exact",)) == [[("pgd", "exact", "soft")]]
    bare = [[("pgd", "none", "none")], [("square", "none", "none")]]
    assert cells_of(subject, options, ("none",)) == bare


def planned(subject, options):
    tasks = adversarial.tasks(subject, options, judge=None)
    return {(task.cells[0].name, round(255 * task.cells[0].epsilon)) for task in tasks}


def test_the_sanity_epsilon_adds_pgd_and_takes_nothing_away(subject, options):
    names = {"fgsm", "pgd", "square"}
    few = dataclasses.replace(options, attacks=tuple(names), epsilons=(8,))
    assert planned(subject, few) == {*((name, 8) for name in names), ("pgd", 64)}
    both = dataclasses.replace(few, epsilons=(8, 64))
    assert planned(subject, both) == {(name, e) for name in names for e in (8, 64)}


def test_three_classes_are_attacked_without_dlr(subject, options):
    dataset = types.SimpleNamespace(name="three", num_classes=3, test=subject.dataset.test)
    three = dataclasses.replace(subject, dataset=dataset)
    assert {name for name, _ in planned(three, options)} == {*options.attacks} - {"apgd_dlr"}
    named = dataclasses.replace(options, attacks=("pgd", "apgd_dlr"))
    with pytest.raises(ValueError, match="need at least 4 classes, three has 3"):
        planned(three, named)


def test_a_worst_case_does_not_forget_earlier_attacks(options, tmp_path):
    cell = Cell("adversarial", "pgd", epsilon=8 / 255, attacker="exact", preprocess="paper")
    fgsm, half = cell._replace(name="fgsm"), cell._replace(name="square")
    results = Results(tmp_path, "x")
    for one, right in ((cell, [1, 0, 1, 0]), (fgsm, [1, 1, 0, 0]), (half, [0, 0])):
        for number in range(len(right) // 2):
            part = np.array(right[2 * number : 2 * number + 2], bool)
            results.write_batch(number, {one.key: part, "zero_gradient": part})
        if one is not half:  # which was interrupted
            results.write(accuracy(one, np.array(right, bool)))
    # The same cell again, in a line that came later.
    results.write_batch(0, {cell.key: np.zeros(2, bool), half.key: np.zeros(2, bool)})
    answers = Results(tmp_path, "x").answers("adversarial")
    assert answers.keys() == {cell.key, fgsm.key}
    unaware = dataclasses.replace(options, attackers=("unaware",), epsilons=(8,))
    found = {r.cell.attacker: r.value for r in adversarial.summarise(unaware, Found((), answers))}
    assert found == {"any": 25.0}


def test_the_worst_case_is_pointwise(options):
    def cell(name, attacker, defence="paper"):
        defence = "none" if attacker == "none" else defence
        return Cell("adversarial", name, epsilon=8 / 255, attacker=attacker, preprocess=defence)

    right = {
        cell("fgsm", "exact").key: np.array([1, 1, 0, 0, 1], bool),
        cell("pgd", "exact").key: np.array([1, 0, 1, 0, 1], bool),
        cell("square", "black-box").key: np.array([0, 1, 1, 1, 1], bool),
        cell("pgd", "none").key: np.array([0, 0, 0, 0, 0], bool),
        cell("pgd", "unaware", "auto").key: np.array([1, 1, 1, 0, 1], bool),
        cell("pgd", "exact", "auto").key: np.array([0, 1, 1, 1, 1], bool),
    }
    rows = list(adversarial.summarise(options, Found((), right)))
    assert {row.cell.name for row in rows} == {"worst"}
    found = {(row.cell.preprocess, row.cell.attacker): row.value for row in rows}
    paper = {"exact": 40.0, "black-box": 80.0, "any": 20.0}
    auto = {"unaware": 80.0, "exact": 80.0, "any": 60.0}
    assert found == {
        ("none", "none"): 0.0,
        **{("paper", who): value for who, value in paper.items()},
        **{("auto", who): value for who, value in auto.items()},
    }


def test_means_over_severities_and_corruptions(options):
    rows = []
    for name, first in (("gaussian_noise", 9), ("contrast", 5)):
        for severity in range(1, 6):
            cell = Cell("corruptions", name, severity=severity, preprocess="none")
            rows.append(accuracy(cell, np.arange(10) < first - severity))
    rows.append(
        accuracy(Cell("corruptions", "fog", severity=1, preprocess="none"), np.ones(10, bool))
    )
    found = {
        row.cell.name: row.value for row in corrupted.summarise(options, Found(tuple(rows), {}))
    }
    assert found == {
        "gaussian_noise": pytest.approx(60.0),
        "contrast": pytest.approx(20.0),
        "mean": pytest.approx(40.0),
    }


def test_the_noise_does_not_depend_on_the_columns(subject, options):
    """Nor has it changed since columns had no names: folders of then can be continued."""
    seen = []

    def each(cells, keys, images, labels):
        seen.append(images)
        return {cell.key: labels == labels for cell in cells}

    batch = next(subject.batches(subject.limited(4), 8, num_workers=0))
    for names in (("none", "paper"), ("auto",)):
        chosen = {"preprocess": names, "corruptions": ("gaussian_noise",), "severities": (2,)}
        one = dataclasses.replace(options, **chosen)
        (task,) = corrupted.tasks(subject, one, types.SimpleNamespace(each=each))
        assert task.measure(batch, task.cells).keys() == {cell.key for cell in task.cells}
    salt = '["corruptions", "gaussian_noise", 2, null, null, false, null]'
    keys = image_keys(options.seed, salt, batch["index"])
    plain = pixels(batch["image"])
    expected = corruptions.corrupt(
        keys, plain, name="gaussian_noise", severity=2, constants="cifar"
    )
    for images in seen:
        np.testing.assert_allclose(images, expected, atol=1e-6)


def test_means_are_by_column(options):
    first = {"none": 9, "soft": 7, "auto": 8}
    rows = [
        accuracy(
            Cell("corruptions", name, severity=severity, preprocess=column),
            np.arange(10) < right - severity,
        )
        for column, right in first.items()
        for name in ("fog", "contrast")[: 1 if column == "auto" else 2]
        for severity in range(1, 6)
    ]
    found = [
        r for r in corrupted.summarise(options, Found(tuple(rows), {})) if r.cell.name == "mean"
    ]
    means = {r.cell.preprocess: (r.value, r.extra["corruptions"]) for r in found}
    assert means == {
        "none": (pytest.approx(60.0), 2),
        "soft": (pytest.approx(40.0), 2),
        "auto": (pytest.approx(50.0), 1),
    }


def test_alexnet_has_a_corruption_error_of_100(options):
    n, rows = 10**6, []
    for name, error in published.ALEXNET_ERRORS.items():
        right = np.arange(n) >= round(error * n)
        for severity in range(1, 6):
            cell = Cell("corruptions", name, severity=severity, preprocess="none")
            rows.append(accuracy(cell, right, extra={"constants": "imagenet"}))
    found = [r for r in corrupted.summarise(options, Found(tuple(rows), {})) if r.metric == "mce"]
    assert [row.value for row in found] == [pytest.approx(100.0)]
