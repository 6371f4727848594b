"""The contract of a training method: pure hooks, whose defaults change nothing.

The update calls the hooks in this order and knows no method by name:

    model  <- wrap(model)                              once, before training
    state  <- init(spec)                               once, before training
    images <- view(state, key, step, batch, predict)   what the network is shown, e.g. smoothed
    images <- (crop, flip)
    images <- attack(key, step, images, batch, predict)  after augmentation, e.g. adversarial
    targets <- targets(state, batch, logits)           inside the loss
    gradients <- grad(loss_fn, params)

`view` comes before augmentation because stored codes belong to the image as it lies in the data
set; an attack comes after it because it is on what the network really sees.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import isvs
from train.models import Classifier

Batch = Mapping[str, jax.Array]
Predict = Callable[[jax.Array], jax.Array]
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

    # Whether batches carry codes, in training and in testing.
    train_codes = False
    test_codes = True
    # Whether the state has a row for every training image, which streamed sets are too large for.
    resident_only = False

    def init(self, spec: Spec) -> Any:
        """The method's own state, a tree of arrays; None for nothing."""
        return None

    def wrap(self, model: Classifier) -> Classifier:
        """The model to train in place of the given one."""
        return model

    def view(
        self, state: Any, key: jax.Array, step: jax.Array, batch: Batch, predict: Predict
    ) -> tuple[jax.Array, Any]:
        """What is shown in place of `batch["image"]`, and the new state."""
        return batch["image"], state

    def attack(
        self, key: jax.Array, step: jax.Array, images: jax.Array, batch: Batch, predict: Predict
    ) -> jax.Array:
        """Changes augmented images, e.g. to the worst near them."""
        return images

    def targets(self, state: Any, batch: Batch, logits: jax.Array) -> tuple[jax.Array, Any]:
        """Rows [B, K] to compare the logits with (a row's sum is its weight), and the new state."""
        return batch["target"], state

    def grad(self, loss_fn: LossFn, params: Any) -> tuple[tuple[jax.Array, Any], Any]:
        """The loss with its extras, and the gradient to follow."""
        return jax.value_and_grad(loss_fn, has_aux=True)(params)

    def metrics(self, state: Any, step: jax.Array) -> dict[str, jax.Array]:
        """Numbers to write down beside the loss."""
        return {}

    def preprocess(self, batch: Batch) -> jax.Array:
        """Test images as the method would have them: smoothed, from codes where the batch has them."""
        if "down" in batch:
            return isvs.ScaleSpace(batch["image"], batch["down"], batch["right"]).at(self.sparsity)
        return isvs.smooth(batch["image"], self.sparsity)


def decode(batch: Batch, level: jax.Array | float) -> jax.Array:
    """The batch's images at a level, from their codes."""
    space = isvs.ScaleSpace(batch["image"], batch["down"], batch["right"])
    return jax.lax.stop_gradient(space.at(level))


def rising_level(step: jax.Array, total_steps: int, start: float, end: float) -> jax.Array:
    """The scheduled level: from `start` at step 0 to `end` at the last step, in a straight line."""
    done = step.astype(jnp.float32) / max(total_steps - 1, 1)
    return start + (end - start) * jnp.clip(done, 0, 1)
