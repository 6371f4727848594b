"""`sat`: self-adaptive training (Huang et al. 2020): targets that follow the network's own opinion.

t <- .9 t + .1 softmax(f(x))   after the first epochs, one row for every training image
loss = c CE(f(x), t) + beta KL(f(x) || f(x + d)),   c = max t, of mean 1 over the batch
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from train.methods.adversarial import Adversarial, Attack, attack_options
from train.methods.base import Batch, Method, Predict, Spec, Views
from train.methods.over_view import Layered

if TYPE_CHECKING:
    from train.config import Config


@dataclasses.dataclass(frozen=True)
class SelfAdaptive(Adversarial):
    """Keeps a row of probabilities for every training image, and trains towards it.

    Without `beta` there is no attack, and images are shown as they are.

    Attributes:
        start_step: before it, targets are the labels.
        momentum: share of the old target that stays at a visit.
    """

    start_step: int
    momentum: float = 0.9
    resident_only = True

    def init_own(self, spec: Spec) -> jax.Array:
        """The targets, float32 [N, K]; zero until the first visit after the start."""
        return jnp.zeros((spec.num_train, spec.num_classes), jnp.float32)

    def views(
        self, key: jax.Array, step: jax.Array, images: jax.Array, batch: Batch, predict: Predict
    ) -> Views:
        """Clean images, and attacked ones where there is a divergence to weigh."""
        return super().views(key, step, images, batch, predict) if self.beta else (images,)

    def targets(
        self, state: Any, step: jax.Array, batch: Batch, logits: jax.Array
    ) -> tuple[jax.Array, Any]:
        """The moved targets times their weights, and the state that remembers them."""
        rows = batch["index"]
        stored = state.own.at[rows].get(mode="promise_in_bounds")  # [B, K]
        visited = jnp.sum(stored, axis=-1, keepdims=True) > 0
        before = jnp.where(visited, stored, batch["target"])
        moved = self.momentum * before + (1 - self.momentum) * jax.nn.softmax(logits)
        begun = step >= self.start_step
        targets = jnp.where(begun, moved, batch["target"])
        # No row comes twice in an epoch.
        own = state.own.at[rows].set(
            jnp.where(begun, moved, stored), mode="promise_in_bounds", unique_indices=True
        )
        weights = jnp.max(targets, axis=-1, keepdims=True)
        return targets * weights / jnp.mean(weights), Layered(own, state.view)


def make(config: "Config", steps_per_epoch: int, base: Method) -> Method:
    """Self-adaptive training from epoch `--sat-start`; adversarial unless `--trades-beta 0`."""
    assert config.sat_start is not None and config.trades_beta is not None
    none = {
        "sparsity": base.sparsity,
        "base": base,
        "attack": Attack(0.0, 0.0, 0),
        "through_smoothing": False,
    }
    return SelfAdaptive(
        **(attack_options(config, base) if config.trades_beta else none),
        beta=config.trades_beta,
        start_step=config.sat_start * steps_per_epoch,
    )
