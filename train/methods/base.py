"""The contract of a training method: pure hooks, whose defaults change nothing.

The update calls the hooks in this order and knows no method by name:

    model   <- wrap(model)                                  once, before training
    state   <- init(spec)                                   once, before training
    images  <- view(state, key, step, batch, predict)       what the network is shown, e.g. smoothed
    images  <- (crop, flip)
    views   <- views(key, step, images, batch, predict)     one or several, e.g. clean and attacked
    logits  <- one forward pass of all views together       one batch for batch normalisation
    targets <- targets(state, step, batch, logits of the first view)
    loss    <- mean of loss(logits of all views, targets, batch)
    gradients <- grad(loss_fn, params, step)

`view` comes before augmentation because stored codes belong to the image as it lies in the data
set; `views` comes after it because an attack is on what the network really sees.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import isvs
from train.models import Classifier

Batch = Mapping[str, jax.Array]
# (key, images [B, H, W, C]) -> logits [B, K], in evaluation mode; the key is for random networks.
Predict = Callable[[jax.Array, jax.Array], jax.Array]
Views = tuple[jax.Array, ...]
LossFn = Callable[[Any], tuple[jax.Array, Any]]


class Spec(NamedTuple):
    """What a method may need to know before the first step."""

    num_train: int
    num_classes: int
    image_shape: tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Method:
    """The identity method, and the base of all others.

    A batch holds `image` (float [B, H, W, C] in [0, 1]), `label` (int32 [B]), `target` (float
    [B, K], the label as probabilities), `index` (int32 [B], the row in the training set) and, for
    methods that ask for them, the codes `down` and `right` of `isvs.ScaleSpace`.

    Attributes:
        sparsity: the level at which test images are smoothed.
    """

    sparsity: float

    @property
    def train_codes(self) -> bool:
        """Whether training batches carry codes."""
        return False

    @property
    def test_codes(self) -> bool:
        """Whether test batches carry codes."""
        return True

    @property
    def has_level(self) -> bool:
        """Whether `preprocess` smooths at `sparsity`."""
        return True

    @property
    def resident_only(self) -> bool:
        """Whether the state has a row for every training image, too many for streamed sets."""
        return False

    @property
    def random(self) -> bool:
        """Whether the network is random in testing too, so that attacks average over draws."""
        return False

    def init(self, spec: Spec) -> Any:
        """The method's own state, a tree of arrays; None for nothing."""
        return None

    def wrap(self, model: Classifier) -> Classifier:
        """The model to train in place of the given one, which may be changed."""
        return model

    def view(
        self, state: Any, key: jax.Array, step: jax.Array, batch: Batch, predict: Predict
    ) -> tuple[jax.Array, Any]:
        """What is shown in place of `batch["image"]`, and the new state."""
        return batch["image"], state

    def level(self, step: jax.Array) -> jax.Array | float | None:
        """The level at which `view` smooths at a step; None if there is no such number."""
        return None

    def views(
        self, key: jax.Array, step: jax.Array, images: jax.Array, batch: Batch, predict: Predict
    ) -> Views:
        """What the network sees of augmented images, e.g. them and the worst near them."""
        return (images,)

    def targets(
        self, state: Any, step: jax.Array, batch: Batch, logits: jax.Array
    ) -> tuple[jax.Array, Any]:
        """Rows [B, K] to compare the logits with (a row's sum is its weight), and the new state."""
        return batch["target"], state

    def loss(self, logits: Views, targets: jax.Array, batch: Batch) -> jax.Array:
        """Losses [B] of the logits [B, K] of each view; by default their mean cross entropy."""
        losses = [optax.softmax_cross_entropy(view, targets) for view in logits]
        return sum(losses[1:], start=losses[0]) / len(losses)

    def grad(
        self, loss_fn: LossFn, params: Any, step: jax.Array
    ) -> tuple[tuple[jax.Array, Any], Any]:
        """The loss with its extras, and the gradient to follow."""
        return jax.value_and_grad(loss_fn, has_aux=True)(params)

    def metrics(self, state: Any, step: jax.Array) -> dict[str, jax.Array]:
        """Numbers to write down beside the loss."""
        return {}

    def smooth(self, batch: Batch, level: Any) -> jax.Array:
        """A batch's images at a level, see `at_level`; as in the paper unless the method says how."""
        return at_level(batch, level)

    def scale_space(self, images: jax.Array) -> isvs.ScaleSpace:
        """All levels of test images: `at` the level `sparsity` it has what `preprocess` makes of them."""
        return isvs.encode(images)

    def at(self, space: isvs.ScaleSpace, level: Any) -> jax.Array:
        """Test images at a level of their `scale_space`."""
        return space.at(level)

    def preprocess(self, batch: Batch) -> jax.Array:
        """Test images as the method would have them: smoothed at `sparsity`."""
        return self.smooth(batch, self.sparsity)


def at_level(
    batch: Batch, level: Any, *, stiffness: float = math.inf, speckle: isvs.Speckle | None = None
) -> jax.Array:
    """The batch's images at a level, from codes where it has them; differentiable in the pixels.

    Args:
        batch: `image`, and perhaps the codes `down` and `right`.
        level: the share of edges in the support.
        stiffness: as in `isvs.smooth`.
        speckle: as in `isvs.smooth`.
    """
    if "down" not in batch:
        return isvs.smooth(batch["image"], level, stiffness=stiffness, speckle=speckle)
    space = isvs.ScaleSpace(batch["image"], batch["down"], batch["right"])
    return space.at(level, stiffness=stiffness, speckle=speckle)


def rising_level(step: jax.Array, total_steps: int, start: float, end: float) -> jax.Array:
    """The scheduled level: from `start` at step 0 to `end` at the last step, in a straight line."""
    done = step.astype(jnp.float32) / max(total_steps - 1, 1)
    return start + (end - start) * jnp.clip(done, 0, 1)
