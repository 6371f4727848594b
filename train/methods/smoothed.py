"""What `fix` and `iterative` share: they show images at a level of their stored scale space."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax

import isvs
from train.methods.base import Batch, Method, Predict, at_level

if TYPE_CHECKING:
    from train.config import Config


@dataclasses.dataclass(frozen=True)
class Smoothed(Method):
    """Shows images at `level`, and prepares test images at `sparsity`.

    Codes are those of the images as they are, so that one set of them serves any stiffness and any
    rule for speckle: views have the support of the images with their speckle. Test images may be
    full of it, so that it is removed before their support is sought, as `isvs.smooth` does.

    Attributes:
        stiffness: of what ties the pixels of a region; infinite as in the paper.
        speckle: which spots are removed first; None for none.
    """

    stiffness: float = dataclasses.field(default=math.inf, kw_only=True)
    speckle: isvs.Speckle | None = dataclasses.field(default=None, kw_only=True)
    train_codes = True

    @property
    def test_codes(self) -> bool:
        """Unless speckle is removed: what is left has another support."""
        return self.speckle is None

    def view(
        self, state: Any, key: jax.Array, step: jax.Array, batch: Batch, predict: Predict
    ) -> tuple[jax.Array, Any]:
        """The images at the level of this step."""
        return jax.lax.stop_gradient(self.smooth(batch, self.level(step))), state

    def smooth(self, batch: Batch, level: Any) -> jax.Array:
        """With the method's own ties, speckle removed first."""
        return at_level(batch, level, stiffness=self.stiffness, speckle=self.speckle)

    def scale_space(self, images: jax.Array) -> isvs.ScaleSpace:
        """Of the images without their speckle."""
        rule = self.speckle
        return isvs.encode(images if rule is None else isvs.remove_speckle(images, rule))

    def at(self, space: isvs.ScaleSpace, level: Any) -> jax.Array:
        """With the method's own ties."""
        return space.at(level, stiffness=self.stiffness)

    def preprocess(self, batch: Batch) -> jax.Array:
        """As `isvs.smooth` has it, whether or not the batch has codes."""
        return self.smooth(batch if self.test_codes else {"image": batch["image"]}, self.sparsity)


def smoothing_options(config: "Config") -> dict[str, Any]:
    """The fields of `Smoothed` beside the level, from `--stiffness` and `--speckle-...`."""
    speckle = None
    if config.speckle_area is not None:
        assert config.speckle_contrast is not None
        speckle = isvs.Speckle(config.speckle_area, config.speckle_contrast)
    stiffness = math.inf if config.stiffness is None else config.stiffness
    return {"stiffness": stiffness, "speckle": speckle}
