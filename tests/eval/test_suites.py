"""What the suites do to images, what they conclude from answers, and what they flag."""

import dataclasses
import fractions
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvs
from eval import published
from eval.options import Options
from eval.results import Cell, Results, accuracy
from eval.subject import open_subject
from eval.suites import adversarial, corrupted, lowres
from eval.suites.base import Found, Judge, image_keys, named_rightly, pixels


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


def test_the_judge_smooths_before_the_network(subject, images):
    judge = Judge(subject, draws=1)
    keys = image_keys(0, "x", jnp.arange(4))
    labels = jnp.argmax(subject.logits(subject.weights, keys[0], images), axis=-1)
    assert judge.bare(keys, images, labels).all()
    smoothed = isvs.smooth(images, subject.sparsity)
    after = jnp.argmax(subject.logits(subject.weights, keys[0], smoothed), axis=-1)
    np.testing.assert_array_equal(judge.defended(keys, images, labels), after == labels)


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
    networks, key = adversarial.networks(subject), jax.random.key(0)
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
    cell = Cell("adversarial", "pgd", epsilon=8 / 255, attacker="exact", smoothed=True)
    assert adversarial._flags(options)(cell, signs(cell, **changes), {}) == expected


def test_survivors_of_a_huge_epsilon_are_flagged(options):
    flags = adversarial._flags(options)
    cell = Cell("adversarial", "pgd", epsilon=64 / 255, attacker="exact", smoothed=True)
    assert flags(cell, signs(cell, right=20), {}) == ("does not fall to zero",)
    assert flags(cell, signs(cell, right=2), {}) == ()
    unaware = cell._replace(attacker="unaware")
    assert flags(unaware, signs(unaware, right=20), {}) == ()


def test_a_black_box_that_beats_gradients_is_flagged(options):
    flags = adversarial._flags(options)
    cell = Cell("adversarial", "square", epsilon=8 / 255, attacker="black-box", smoothed=True)
    white = cell._replace(name="pgd", attacker="exact")
    before = {white.key: np.arange(100) < 50}
    assert flags(cell, signs(cell, right=30), before) == ("black box beats white box",)
    assert flags(cell, signs(cell, right=60), before) == ()


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
    cell = Cell("adversarial", "pgd", epsilon=8 / 255, attacker="exact", smoothed=True)
    fgsm, half = cell._replace(name="fgsm"), cell._replace(name="square")
    results = Results(tmp_path, "x")
    for one, right in ((cell, [1, 0, 1, 0]), (fgsm, [1, 1, 0, 0]), (half, [0, 0])):
        for number in range(len(right) // 2):
            part = np.array(right[2 * number : 2 * number + 2], bool)
            results.write_batch(one.name, number, {one.key: part, "zero_gradient": part})
        if one is not half:  # which was interrupted
            results.write(accuracy(one, np.array(right, bool)))
    # The same cell in another task, which was interrupted.
    results.write_batch("more", 0, {cell.key: np.zeros(2, bool), half.key: np.zeros(2, bool)})
    answers = Results(tmp_path, "x").answers("adversarial")
    assert answers.keys() == {cell.key, fgsm.key}
    unaware = dataclasses.replace(options, attackers=("unaware",), epsilons=(8,))
    found = {r.cell.attacker: r.value for r in adversarial.summarise(unaware, Found((), answers))}
    assert found == {"any": 25.0}


def test_the_worst_case_is_pointwise(options):
    def cell(name, attacker):
        smoothed = attacker != "none"
        return Cell("adversarial", name, epsilon=8 / 255, attacker=attacker, smoothed=smoothed)

    right = {
        cell("fgsm", "exact").key: np.array([1, 1, 0, 0, 1], bool),
        cell("pgd", "exact").key: np.array([1, 0, 1, 0, 1], bool),
        cell("square", "black-box").key: np.array([0, 1, 1, 1, 1], bool),
        cell("pgd", "none").key: np.array([0, 0, 0, 0, 0], bool),
    }
    rows = adversarial.summarise(options, Found((), right))
    found = {row.cell.attacker: row.value for row in rows if row.cell.name == "worst"}
    assert found == {"none": 0.0, "exact": 40.0, "black-box": 80.0, "any": 20.0}


def test_means_over_severities_and_corruptions(options):
    rows = []
    for name, first in (("gaussian_noise", 9), ("contrast", 5)):
        for severity in range(1, 6):
            cell = Cell("corruptions", name, severity=severity, smoothed=False)
            rows.append(accuracy(cell, np.arange(10) < first - severity))
    rows.append(accuracy(Cell("corruptions", "fog", severity=1, smoothed=False), np.ones(10, bool)))
    found = {
        row.cell.name: row.value for row in corrupted.summarise(options, Found(tuple(rows), {}))
    }
    assert found == {
        "gaussian_noise": pytest.approx(60.0),
        "contrast": pytest.approx(20.0),
        "mean": pytest.approx(40.0),
    }


def test_alexnet_has_a_corruption_error_of_100(options):
    n, rows = 10**6, []
    for name, error in published.ALEXNET_ERRORS.items():
        right = np.arange(n) >= round(error * n)
        for severity in range(1, 6):
            cell = Cell("corruptions", name, severity=severity, smoothed=False)
            rows.append(accuracy(cell, right, extra={"constants": "imagenet"}))
    found = [r for r in corrupted.summarise(options, Found(tuple(rows), {})) if r.metric == "mce"]
    assert [row.value for row in found] == [pytest.approx(100.0)]
