"""`augmix`: mixtures of chains of operations, on which the network must agree (Hendrycks et al. 2020).

mix = (1 - m) x + m (w1 chain1(x) + w2 chain2(x) + w3 chain3(x)),  w ~ Dirichlet(1), m ~ Beta(1, 1)
loss = CE(f(x), y) + 12 JSD(f(x), f(mix), f(another mix))
"""

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import optax

from train.methods.base import Batch, Method, Predict, Views
from train.methods.image_operations import OPERATIONS, operate
from train.methods.over_view import OverView

if TYPE_CHECKING:
    from train.config import Config

_WIDTH = 3  # chains in a mixture
_DEPTH = 3  # operations in a chain, at most
_WEAKEST = 0.1


@dataclasses.dataclass(frozen=True)
class AugMix(OverView):
    """Shows an image and two mixtures of it.

    Attributes:
        severity: greatest strength of an operation, of 10.
        jsd_weight: of the divergence of the three answers.
    """

    severity: float
    jsd_weight: float

    def views(
        self, key: jax.Array, step: jax.Array, images: jax.Array, batch: Batch, predict: Predict
    ) -> Views:
        """The images, and two mixtures of each."""
        # Both at once: twice the batch compiles to half the program.
        twice = jnp.stack([images, images], axis=1).reshape(-1, *images.shape[1:])
        mixed = mix(key, twice, self.severity).reshape(len(images), 2, *images.shape[1:])
        return images, mixed[:, 0], mixed[:, 1]

    def loss(self, logits: Views, targets: jax.Array, batch: Batch) -> jax.Array:
        """Cross entropy of the clean images, and the divergence."""
        return optax.softmax_cross_entropy(logits[0], targets) + self.jsd_weight * jsd(logits)


def jsd(logits: Views) -> jax.Array:
    """The Jensen-Shannon divergence of several answers, [B]: the mean KL to their mean."""
    log_each = jax.nn.log_softmax(jnp.stack(logits))  # [V, B, K]
    log_mean = jax.nn.logsumexp(log_each, axis=0, keepdims=True) - jnp.log(len(logits))
    return jnp.sum(jnp.exp(log_each) * (log_each - log_mean), axis=-1).mean(0)


def mix(key: jax.Array, images: jax.Array, severity: float) -> jax.Array:
    """A random mixture of each image [B, H, W, C] and its chains."""
    keys = jax.random.split(key, 6)
    count = len(images)
    shape = (_DEPTH, count * _WIDTH)
    operations = jax.random.randint(keys[0], shape, 0, len(OPERATIONS))
    strengths = jax.random.uniform(keys[1], shape, minval=_WEAKEST, maxval=severity)
    signs = jax.random.rademacher(keys[2], shape, jnp.float32)
    lengths = jax.random.randint(keys[3], (count * _WIDTH,), 1, _DEPTH + 1)

    def advance(chains: jax.Array, settings: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        place, *how = settings
        goes_on = (place < lengths)[:, None, None, None]
        return jnp.where(goes_on, operate(chains, *how), chains), None

    chains = jnp.repeat(images, _WIDTH, axis=0)  # [B * width, H, W, C], chains of an image together
    settings = (jnp.arange(_DEPTH), operations, strengths, signs)
    chains, _ = jax.lax.scan(advance, chains, settings)
    chains = chains.reshape(count, _WIDTH, *images.shape[1:])
    shares = jax.random.dirichlet(keys[4], jnp.ones(_WIDTH), (count,))  # [B, width]
    changed = jnp.einsum("bw,bwhxc->bhxc", shares, chains)
    share = jax.random.uniform(keys[5], (count, 1, 1, 1))  # Beta(1, 1)
    return (1 - share) * images + share * changed


def make(config: "Config", steps_per_epoch: int, base: Method) -> Method:
    """AugMix at `--augmix-severity`, with the divergence weighed by `--jsd-weight`."""
    assert config.augmix_severity is not None and config.jsd_weight is not None
    return AugMix(
        sparsity=base.sparsity,
        base=base,
        severity=config.augmix_severity,
        jsd_weight=config.jsd_weight,
    )
