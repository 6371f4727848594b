"""`adversarial`: training on the worst images near (Madry et al. 2018), and TRADES (Zhang et al. 2019).

min over w, of the mean of  max over |d| <= epsilon of CE(f_w(x + d), y)
TRADES:  CE(f_w(x), y) + beta max over |d| <= epsilon of KL(f_w(x) || f_w(x + d))
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import optax

from train.attacks import pgd
from train.methods.base import Batch, Method, Predict, Views
from train.methods.over_view import OverView

if TYPE_CHECKING:
    from train.config import Config


@dataclasses.dataclass(frozen=True)
class Attack:
    """Projected gradient ascent from a random start, in pixel units.

    Attributes:
        epsilon: greatest change of a pixel.
        step_size: change of every pixel in a step.
        steps: gradients taken.
    """

    epsilon: float
    step_size: float
    steps: int


@dataclasses.dataclass(frozen=True)
class Attacked(OverView):
    """Finds the worst images near those of the batch; the base of all that train on them.

    Where the attack goes through the smoothing, pixels are attacked before they are smoothed, with
    the exact gradient of ``f(smooth(x + d))``; regions move with the pixels, so that every step of
    the attack solves the scale space anew.

    Attributes:
        attack: how they are found.
        through_smoothing: whether the raw pixels are attacked, else what the view shows.
    """

    attack: Attack
    through_smoothing: bool

    @property
    def train_codes(self) -> bool:
        """The view's, unless attacked pixels are smoothed afresh."""
        return self.base.train_codes and not self.through_smoothing

    def view(
        self, state: Any, key: jax.Array, step: jax.Array, batch: Batch, predict: Predict
    ) -> tuple[jax.Array, Any]:
        """The view's; or the raw images, to be smoothed after the attack."""
        if self.through_smoothing:
            return batch["image"], state
        return super().view(state, key, step, batch, predict)

    def seen(self, step: jax.Array, images: jax.Array) -> jax.Array:
        """What the network sees of images that are attacked: [B, H, W, C] -> the same."""
        if not self.through_smoothing:
            return images
        return self.base.smooth({"image": images}, self.base.level(step))

    def losses(self, clean: jax.Array, attacked: jax.Array, batch: Batch) -> jax.Array:
        """What the attack raises, [B], of the logits [B, K] of clean and of attacked images."""
        return optax.softmax_cross_entropy_with_integer_labels(attacked, batch["label"])

    def worst(
        self, key: jax.Array, step: jax.Array, images: jax.Array, batch: Batch, predict: Predict
    ) -> jax.Array:
        """Attacked images [B, H, W, C], before smoothing where the attack goes through it."""
        start_key, network_key = jax.random.split(key)

        def logits(images: jax.Array) -> jax.Array:
            return predict(network_key, self.seen(step, images))

        clean = jax.lax.stop_gradient(logits(images))
        return pgd.perturb(
            lambda points: self.losses(clean, logits(points), batch),
            start_key,
            images,
            epsilon=self.attack.epsilon,
            step_size=self.attack.step_size,
            steps=self.attack.steps,
        )


@dataclasses.dataclass(frozen=True)
class Adversarial(Attacked):
    """Trains on attacked images alone or, with `beta`, on clean ones that attacks leave unmoved.

    Attributes:
        beta: weight of the divergence of TRADES; 0 for attacked images alone.
    """

    beta: float

    def losses(self, clean: jax.Array, attacked: jax.Array, batch: Batch) -> jax.Array:
        """The divergence for TRADES, else the cross entropy."""
        return divergence(clean, attacked) if self.beta else super().losses(clean, attacked, batch)

    def views(
        self, key: jax.Array, step: jax.Array, images: jax.Array, batch: Batch, predict: Predict
    ) -> Views:
        """The attacked images; for TRADES the clean ones before them."""
        attacked = self.seen(step, self.worst(key, step, images, batch, predict))
        return (self.seen(step, images), attacked) if self.beta else (attacked,)

    def loss(self, logits: Views, targets: jax.Array, batch: Batch) -> jax.Array:
        """Cross entropy of the first view, and `beta` times its divergence from the second."""
        losses = optax.softmax_cross_entropy(logits[0], targets)
        return losses + self.beta * divergence(*logits) if self.beta else losses


def divergence(logits: jax.Array, others: jax.Array) -> jax.Array:
    """KL(softmax(logits) || softmax(others)), [B], differentiable in both."""
    log_p, log_q = jax.nn.log_softmax(logits), jax.nn.log_softmax(others)
    return optax.losses.kl_divergence_with_log_targets(log_q, log_p)


def attack_options(config: "Config", base: Method) -> dict[str, Any]:
    """The fields of `Attacked`, from `--attack-...`."""
    assert config.attack_epsilon is not None and config.attack_step is not None
    assert config.attack_steps is not None
    return {
        "sparsity": base.sparsity,
        "base": base,
        "attack": Attack(config.attack_epsilon, config.attack_step, config.attack_steps),
        "through_smoothing": config.attack_through == "smoothing",
    }


def make(config: "Config", steps_per_epoch: int, base: Method) -> Method:
    """Adversarial training, or TRADES with `--trades-beta`."""
    assert config.trades_beta is not None
    return Adversarial(**attack_options(config, base), beta=config.trades_beta)
