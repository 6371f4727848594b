"""`awp`: adversarial weight perturbation (Wu et al. 2020), on top of adversarial training or TRADES.

gradient of the loss at w + v, applied at w;  v = gamma |w| d / |d| for every tensor, d = dL/dw
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from train.methods.adversarial import Adversarial, attack_options
from train.methods.base import LossFn, Method

if TYPE_CHECKING:
    from train.config import Config


@dataclasses.dataclass(frozen=True)
class AWP(Adversarial):
    """Follows the gradient of nearby weights at which the loss is higher.

    Attributes:
        gamma: length of the way there, as a share of each tensor's norm.
        warmup_steps: first steps, which follow the plain gradient.
    """

    gamma: float
    warmup_steps: int

    def grad(
        self, loss_fn: LossFn, params: Any, step: jax.Array
    ) -> tuple[tuple[jax.Array, Any], Any]:
        """Loss, extras and gradient at the worsened weights.

        The extras of the first pass are dropped: running averages move once.
        """
        ordinary = jax.value_and_grad(loss_fn, has_aux=True)

        def worsened(params: Any) -> Any:
            _, ascent = ordinary(params)
            return ordinary(worsen(params, ascent, self.gamma))

        if self.warmup_steps == 0:
            return worsened(params)
        return jax.lax.cond(step < self.warmup_steps, ordinary, worsened, params)


def worsen(params: Any, ascent: Any, gamma: float) -> Any:
    """Weights one step up the loss: every tensor of two axes or more by `gamma` of its norm."""

    def move(weights: jax.Array, direction: jax.Array) -> jax.Array:
        if weights.ndim < 2:
            return weights
        length = jnp.linalg.norm(direction.ravel())
        unit = direction / jnp.where(length > 0, length, 1)
        return weights + gamma * jnp.linalg.norm(weights.ravel()) * unit

    return jax.tree.map(move, params, ascent)


def make(config: "Config", steps_per_epoch: int, base: Method) -> Method:
    """Adversarial training with `--awp-gamma`, after `--awp-warmup` epochs."""
    assert config.awp_gamma is not None and config.awp_warmup is not None
    assert config.trades_beta is not None
    return AWP(
        **attack_options(config, base),
        beta=config.trades_beta,
        gamma=config.awp_gamma,
        warmup_steps=round(config.awp_warmup * steps_per_epoch),
    )
