import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train import attacks
from train.attacks import apgd, ascent, ball, losses, search, square
from train.attacks.victim import Victim
from train.data.shapes import open_shapes
from train.sharding import Layout

SHAPE = (4, 4, 2)
EPSILON = 0.05
ATTACKS = {
    "fgsm": attacks.fgsm(),
    "pgd": attacks.PGD(steps=10, restarts=2),
    "apgd": attacks.APGD(steps=20),
    "targeted": attacks.APGD(steps=10, loss="targeted"),
    "square": attacks.Square(queries=60),
}


@pytest.fixture(autouse=True)
def strict_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield


def weights(classes, seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    return np.float32(rng.normal(size=(int(np.prod(shape)), classes)))


def linear(classes, images):
    return (images - 0.5).reshape(len(images), -1) @ weights(classes)


def five_classes(_, images):
    return jnp.tanh(linear(5, images))


def two_classes(_, images):
    return linear(2, images)


def batch(network, count=16, low=0.0, high=1.0, seed=0):
    """Keys, images, and labels that the network agrees with."""
    images = np.random.default_rng(seed).uniform(low, high, size=(count, *SHAPE))
    images = jnp.asarray(images, jnp.float32)
    return keys_of(count), images, jnp.argmax(network(jax.random.key(0), images), axis=-1)


def keys_of(count, seed=0):
    base = jax.random.key(seed)
    return jax.vmap(lambda row: jax.random.fold_in(base, row))(jnp.arange(count))


# These programs run for milliseconds; most of the time would go into optimising them.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def compiled(attack, network):
    return jit(lambda *arguments: attack(network, *arguments))


def run(attack, network, *arguments):
    return compiled(attack, network)(*arguments)


# A linear network, whose worst point is known.


@pytest.mark.parametrize("name", ["fgsm", "pgd", "apgd"])
def test_reaches_the_worst_point_of_a_linear_network(name):
    keys, images, labels = batch(two_classes, low=0.2, high=0.8)
    found = run(ATTACKS[name], two_classes, keys, images, labels, EPSILON)
    slope = weights(2)[:, 0] - weights(2)[:, 1]
    margin = np.where(labels == 0, 1, -1) * ((np.asarray(images) - 0.5).reshape(16, -1) @ slope)
    np.testing.assert_allclose(
        found.loss, np.logaddexp(0, EPSILON * np.abs(slope).sum() - margin), atol=1e-4
    )
    np.testing.assert_array_equal(found.right, margin > EPSILON * np.abs(slope).sum())
    assert 0 < found.right.mean() < 1


@pytest.mark.parametrize("loss", ["dlr", "targeted"])
def test_dlr_reaches_the_worst_corner(loss):
    shape = (2, 2, 2)
    matrix, offset = weights(4, 1, shape), np.float32([2.0, 1.2, 0.0, -1.5])

    def network(_, images):
        return offset[None] + (images - 0.5).reshape(len(images), -1) @ matrix

    images = np.random.default_rng(0).uniform(0.45, 0.55, size=(4, *shape)).astype(np.float32)
    corners = np.float32(list(itertools.product([-1, 1], repeat=8))).reshape(-1, 1, *shape)
    logits = offset + (images + 0.03 * corners - 0.5).reshape(256, 4, 8) @ matrix
    # While the order of the classes stays, both losses are ratios of linear functions, whose
    # maximum lies in a corner.
    assert (np.diff(logits) < 0).all()
    z = np.moveaxis(logits, -1, 0)
    denominator = z[0] - (z[2] if loss == "dlr" else (z[2] + z[3]) / 2)
    best = (-(z[0] - z[1]) / denominator).max(0)
    labels = jnp.zeros(4, jnp.int32)
    attack = attacks.APGD(steps=25, loss=loss)
    found = run(attack, network, keys_of(4), images, labels, 0.03)
    np.testing.assert_allclose(found.loss, best, rtol=1e-4)


def test_losses_against_sorting():
    rng = np.random.default_rng(0)
    logits, labels = np.float32(rng.normal(size=(50, 6))), rng.integers(0, 6, size=50)
    targets = (labels + rng.integers(1, 6, size=50)) % 6
    descending = -np.sort(-logits, axis=1)
    rows = np.arange(50)
    own, other = logits[rows, labels], np.where(np.eye(6)[labels] > 0, -9, logits).max(1)
    np.testing.assert_allclose(losses.margin(logits, labels), own - other, rtol=1e-5)
    np.testing.assert_allclose(
        losses.ce(logits, labels), np.log(np.exp(logits).sum(1)) - own, atol=1e-5
    )
    np.testing.assert_allclose(
        losses.dlr(logits, labels), (other - own) / (descending[:, 0] - descending[:, 2]), rtol=1e-4
    )
    np.testing.assert_allclose(
        losses.targeted_dlr(logits, labels, targets),
        (logits[rows, targets] - own) / (descending[:, 0] - descending[:, 2:4].mean(1)),
        rtol=1e-4,
    )


# A trained network, and plain loops beside ours.

IMAGES = 64
REACH = 0.02


@functools.cache
def trained():
    """A small convolutional network on pictures of shapes, at half their size."""
    dataset = open_shapes(seed=0, limit_train=400, limit_test=1)
    pictures = np.float32(dataset.train.images) / 255
    pictures = jnp.asarray(pictures.reshape(-1, 16, 2, 16, 2, 3).mean((2, 4)))
    labels = jnp.asarray(dataset.train.labels)
    rng = np.random.default_rng(0)
    params = [
        jnp.asarray(rng.normal(size=shape) * np.sqrt(2 / shape[0]), jnp.float32)
        for shape in ((48, 32), (512, 64), (64, 10))
    ]

    def apply(params, images):
        # A convolution of side and stride 4, as a product: quicker on a processor.
        patches = (images - 0.5).reshape(-1, 4, 4, 4, 4, 3).swapaxes(2, 3)
        features = jax.nn.relu(patches.reshape(-1, 16, 48) @ params[0])
        return jax.nn.relu(features.reshape(-1, 512) @ params[1]) @ params[2]

    optimizer = optax.adam(0.003)

    def step(carry, _):
        params, state = carry
        gradient = jax.grad(lambda p: losses.ce(apply(p, pictures), labels).mean())(params)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), None

    fit = jax.jit(lambda start: jax.lax.scan(step, start, length=100)[0][0])
    params = fit((params, optimizer.init(params)))
    return lambda _, images: apply(params, images), pictures[:IMAGES], labels[:IMAGES]


@functools.cache
def plain_gradient():
    network, _, labels = trained()

    def loss(images):
        logits = network(None, images)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return each.sum(), (each, logits.argmax(-1) == labels)

    gradient = jax.jit(jax.grad(loss, has_aux=True))

    def at(images):
        slope, (each, right) = gradient(jnp.asarray(images, jnp.float32))
        return np.asarray(each), np.asarray(right), np.asarray(slope)

    return at


def project(points, images, epsilon):
    return np.clip(np.clip(points, images - epsilon, images + epsilon), 0, 1)


def plain_pgd(start, images, epsilon, steps):
    """Accuracy under PGD; each image is lost as soon as one point is misclassified."""
    points, robust = start, np.ones(len(images), bool)
    for number in range(steps + 1):
        _, right, slope = plain_gradient()(points)
        robust &= right
        if number < steps:
            points = project(points + 2.5 / steps * epsilon * np.sign(slope), images, epsilon)
    return robust


def plain_apgd(start, images, epsilon, steps):
    """Algorithm 1 of Croce and Hein, image by image where it branches."""
    places, p, width = [0], 0.22, 0.22
    while p < 1:
        places.append(int(np.ceil(round(p * steps, 6))))
        width = max(width - 0.03, 0.06)
        p += width
    count = len(images)
    points, before = [start], start
    value, right, slope = plain_gradient()(start)
    values, robust = [value], right.copy()
    size, sizes = np.full(count, 2 * epsilon), [np.full(count, 2 * epsilon)]
    best, best_slope, best_value, history = start.copy(), slope.copy(), value.copy(), [value.copy()]
    for k in range(steps):
        x = points[-1]
        z = project(x + size[:, None, None, None] * np.sign(slope), images, epsilon)
        new = z if k == 0 else project(x + 0.75 * (z - x) + 0.25 * (x - before), images, epsilon)
        before = x
        value, right, slope = plain_gradient()(new)
        robust &= right
        value, slope, new = value.copy(), slope.copy(), new.copy()
        for i in np.flatnonzero(value > best_value):
            best[i], best_slope[i], best_value[i] = new[i], slope[i], value[i]
        history.append(best_value.copy())
        values.append(value)
        if k + 1 in places[1:]:
            j = places.index(k + 1)
            first = places[j - 1]
            sizes.append(size.copy())
            for i in range(count):
                rises = sum(values[t + 1][i] > values[t][i] for t in range(first, k + 1))
                same = sizes[j - 1][i] == sizes[j][i] and history[first][i] == history[k + 1][i]
                if rises < 0.75 * (k + 1 - first) or same:
                    size[i] /= 2
                    new[i], slope[i], value[i] = best[i], best_slope[i], best_value[i]
        points.append(new)
    return robust, best_value


def test_pgd_is_no_weaker_than_a_plain_loop():
    network, images, labels = trained()
    assert (network(None, images).argmax(-1) == labels).mean() > 0.9
    attack = attacks.PGD(steps=10)
    found = run(attack, network, keys_of(IMAGES), images, labels, REACH)
    noise = np.random.default_rng(1).uniform(-REACH, REACH, size=images.shape)
    start = project(images + noise, np.asarray(images), REACH)
    robust = plain_pgd(start, np.asarray(images), REACH, 10)
    assert 0.1 < robust.mean() < 0.9
    assert found.right.mean() <= robust.mean() + 1.5 / IMAGES


def test_apgd_follows_the_paper_step_by_step():
    network, images, labels = trained()
    keys = keys_of(IMAGES)
    found = run(attacks.APGD(steps=30), network, keys, images, labels, REACH)
    own_keys = search.keys_of(keys, 0).images
    start = ascent.random_start(own_keys, ball.around(images, REACH), touch=True)
    robust, loss = plain_apgd(np.asarray(start), np.asarray(images), REACH, 30)
    right = np.asarray(network(None, images).argmax(-1) == labels)
    # Rounding decides the sign of gradients near zero, so a few paths may part from their twins.
    assert (np.abs(found.loss - loss) < 1e-3 * loss)[right].mean() > 0.9
    assert found.right.mean() <= robust.mean() + 1.5 / IMAGES
    pgd = run(attacks.PGD(steps=10), network, keys, images, labels, REACH)
    assert found.right.mean() <= pgd.right.mean() + 1.5 / IMAGES


@pytest.mark.parametrize("steps", [1, 2, 7, 20, 100, 101])
def test_checkpoints(steps):
    places = apgd.checkpoints(steps)
    assert places == sorted(set(places)) and places[0] >= 1 and places[-1] <= steps
    if steps == 100:
        assert places == [22, 41, 57, 70, 80, 87, 93, 99]


@jax.custom_vjp
def value_only(images):
    return images


def _differentiated(*_):
    raise AssertionError("a gradient was taken")


value_only.defvjp(_differentiated, _differentiated)


def no_gradient(_, images):
    return five_classes(None, value_only(images))


def test_square_needs_no_gradient():
    arguments = batch(five_classes, 24)
    found = run(attacks.Square(queries=150), no_gradient, *arguments, EPSILON)
    white = run(ATTACKS["targeted"], five_classes, *arguments, EPSILON)
    assert found.right.mean() < 0.7
    assert white.right.mean() <= found.right.mean() + 1 / 24
    assert not found.zero_gradient.any() and not found.bad_gradient.any()
    with pytest.raises(AssertionError, match="gradient was taken"):
        attacks.fgsm()(no_gradient, *arguments, EPSILON)


def test_square_changes_squares_of_the_published_sides():
    # 32x32: sqrt(0.8 * 1024) = 28.6, and so on; side 1 in the end.
    assert list(square.side_lengths(0.8, 32, 32)) == [29, 20, 14, 10, 7, 5, 4, 3, 2, 1]
    assert list(square.halving_queries(10_000)) == [
        10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000
    ]  # fmt: skip
    assert list(square.halving_queries(1000))[:3] == [1, 5, 20]
    attack = attacks.Square(queries=1000)
    images = jnp.full((40, 16, 16, 3), 0.5)
    area = ball.around(images, EPSILON)
    candidate = jax.jit(lambda number: attack._candidate(number, keys_of(40), area, images))
    seen = []
    for number, side in ((1, 10), (30, 5), (900, 1)):
        delta = np.asarray(candidate(number) - images)
        np.testing.assert_allclose(np.abs(delta[delta != 0]), EPSILON, rtol=1e-5)
        for changed in (delta != 0).all(-1):
            rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
            assert len(rows) == len(columns) == side and changed.sum() == side**2
            seen.append((side, rows[0], columns[0]))
        assert len(np.unique(np.sign(delta).sum((1, 2)) / side**2, axis=0)) > 3
    assert {row for side, row, _ in seen if side == 10} == set(range(7))
    assert len(set(seen)) > 60


# Random networks.


def random_weights(key, images):
    """Every draw adds its own linear function, as large as the one that decides on average."""
    flat = (images - 0.5).reshape(len(images), -1)
    return flat @ (weights(5) + 2.0 * jax.random.normal(key, (flat.shape[1], 5)))


def test_gradient_is_the_mean_over_draws():
    _, images, labels = batch(five_classes)
    key = jax.random.key(3)

    def loss_of(logits):
        return losses.ce(logits, labels)

    victim = Victim(random_weights, labels, 4)
    value, slope = jax.jit(lambda: victim.slope(loss_of, key, images))()

    @jax.jit
    def one(number):
        draw = jax.random.fold_in(key, number)
        gradient = jax.grad(lambda x: loss_of(random_weights(draw, x)).sum())(images)
        logits = random_weights(draw, images)
        return gradient, loss_of(logits), jax.nn.softmax(logits)

    draws = [one(number) for number in range(4)]
    gradient, loss, probabilities = (np.mean(each, 0) for each in zip(*draws, strict=True))
    np.testing.assert_allclose(slope.gradient, gradient, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(value.loss, loss, rtol=1e-5)
    np.testing.assert_array_equal(value.wrong, probabilities.argmax(-1) != labels)
    assert 0 < value.wrong.mean() < 1


def test_more_draws_make_a_stronger_attack():
    _, images, _ = batch(five_classes, 64)
    labels = jnp.argmax(linear(5, images), axis=-1)

    @jax.jit
    def mean_logits(points):
        keys = jax.random.split(jax.random.key(9), 100)
        return jax.nn.softmax(jax.vmap(lambda key: random_weights(key, points))(keys)).mean(0)

    accuracy = {
        draws: np.mean(
            [
                (mean_logits(found.images).argmax(-1) == labels).mean()
                for seed in range(3)
                for found in [
                    run(attacks.fgsm(draws), random_weights, keys_of(64, seed), images, labels, 0.1)
                ]
            ]
        )
        for draws in (1, 8)
    }
    assert accuracy[8] <= accuracy[1]


# Flags.


def flat(_, images):
    return five_classes(None, jax.lax.stop_gradient(images))


def broken(_, images):
    """The gradient of the first pixel is 0 * inf where that pixel is below one half."""
    extra = jnp.sqrt(jnp.maximum(images[:, 0, 0, 0] - 0.5, 0.0))
    return five_classes(None, images) + 0.1 * extra[:, None] * jnp.eye(5)[:1]


def test_zero_gradient_is_flagged():
    arguments = batch(five_classes)
    found = run(ATTACKS["fgsm"], flat, *arguments, EPSILON)
    assert found.zero_gradient.all() and not found.bad_gradient.any()
    found = run(ATTACKS["fgsm"], five_classes, *arguments, EPSILON)
    assert not found.zero_gradient.any() and not found.bad_gradient.any()


def test_bad_gradient_is_flagged_and_does_no_harm():
    keys, images, labels = batch(broken)
    found = run(ATTACKS["fgsm"], broken, keys, images, labels, EPSILON)
    np.testing.assert_array_equal(found.bad_gradient, images[:, 0, 0, 0] <= 0.5)
    assert 0 < found.bad_gradient.mean() < 1
    assert np.isfinite(found.images).all() and not found.zero_gradient.any()
    assert found.right.mean() < 0.7
    points = jax.jit(
        lambda key: attacks.perturb(
            lambda x: losses.ce(broken(None, x), labels),
            key,
            images,
            epsilon=EPSILON,
            step_size=0.02,
            steps=5,
        )
    )(jax.random.key(0))
    assert np.isfinite(points).all()
    assert np.abs(points - images).max() <= EPSILON + 1e-6
    accuracy = (broken(None, points).argmax(-1) == labels).mean()
    assert accuracy <= found.right.mean() + 0.2


def test_a_short_attack_is_still_rising():
    arguments = batch(two_classes, low=0.2, high=0.8)
    short = attacks.PGD(steps=2, step_size=0.2, random_start=False)
    assert run(short, two_classes, *arguments, EPSILON).still_rising.all()
    assert not run(ATTACKS["apgd"], two_classes, *arguments, EPSILON).still_rising.any()


# The contract of every attack.


@pytest.mark.parametrize("name", ["fgsm", "pgd", "targeted", "square"])
def test_contract(name):
    keys, images, _ = batch(five_classes, 24)
    images = images.at[:, 0, 0].set(0.0).at[:, 1, 1].set(1.0)
    right = np.arange(24) % 6 > 0
    labels = (five_classes(None, images).argmax(-1) + ~right) % 5
    traces = []

    @jit
    def jitted(*arguments):
        traces.append(arguments)
        return ATTACKS[name](five_classes, *arguments)

    counts = []
    for epsilon in (0.0, 0.06, 0.3):
        radius = jnp.array([epsilon, epsilon / 2])  # of each channel
        found = jitted(keys, images, labels, radius)
        change = np.abs(found.images - images).max((0, 1, 2))
        np.testing.assert_allclose(change, radius, atol=1e-6)
        assert found.images.min() >= 0 and found.images.max() <= 1
        assert not found.right[~right].any()  # wrong from the start
        judged = five_classes(None, found.images).argmax(-1) == labels
        np.testing.assert_array_equal(found.right, judged)
        counts.append(found.right.sum())
    assert len(traces) == 1
    assert counts[0] == right.sum() > counts[1] > counts[2]

    # Neither the batch nor the devices make a difference.
    found = jitted(keys, images, labels, jnp.full(2, 0.06))
    few = [jax.device_put(array[4:12], Layout().split) for array in (keys, images, labels)]
    spread = jitted(*few, jnp.full(2, 0.06))
    for one, other in zip(spread, found, strict=True):
        np.testing.assert_allclose(one, other[4:12], rtol=1e-4, atol=1e-5)
    for split in (spread.images, spread.right, spread.loss):
        assert split.sharding.spec[0] == "batch"


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("name", ["pgd", "targeted", "square"])
def test_lowers_for_every_platform(name, platform):
    arguments = batch(five_classes, 4)
    lowered = compiled(ATTACKS[name], five_classes).trace(*arguments, EPSILON)
    text = lowered.lower(lowering_platforms=(platform,)).as_text()
    assert "callback" not in text and "stablehlo.while" in text


def test_errors_say_what_was_expected():
    keys, images, labels = batch(two_classes, 4)
    with pytest.raises(ValueError, match="at least 4 classes, the network has 2"):
        attacks.APGD(loss="targeted")(two_classes, keys, images, labels, EPSILON)
    with pytest.raises(ValueError, match="at least 4 classes"):
        attacks.PGD(loss="dlr")(two_classes, keys, images, labels, EPSILON)
    with pytest.raises(ValueError, match="choose one of ce, dlr, margin"):
        attacks.PGD(loss="mse")
    with pytest.raises(ValueError, match="steps of at least 1, got 0"):
        attacks.APGD(steps=0)
    with pytest.raises(ValueError, match="initial_fraction"):
        attacks.Square(initial_fraction=1.5)
    with pytest.raises(ValueError, match="one typed key for each of 4 images"):
        attacks.PGD()(two_classes, jax.random.key(0), images, labels, EPSILON)
    with pytest.raises(ValueError, match="each of the 2 channels"):
        attacks.PGD()(two_classes, keys, images, labels, jnp.ones(3))
    with pytest.raises(ValueError, match="in floating point"):
        attacks.PGD()(two_classes, keys, images.astype(int), labels, EPSILON)
