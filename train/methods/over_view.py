"""What all competitors share: each stands over a view (raw, blurred or smoothed images)."""

import dataclasses
from typing import Any, NamedTuple

import jax

import isvs
from train.methods.base import Batch, Method, Predict, Spec


class Layered(NamedTuple):
    """The state of a method over a view: both of theirs."""

    own: Any
    view: Any


@dataclasses.dataclass(frozen=True)
class OverView(Method):
    """Shows what another method shows; the base of methods that change something else.

    Attributes:
        base: the method whose view is shown, and whose preprocessing prepares test images.
    """

    base: Method

    @property
    def train_codes(self) -> bool:
        """The view's."""
        return self.base.train_codes

    @property
    def test_codes(self) -> bool:
        """The view's."""
        return self.base.test_codes

    @property
    def has_level(self) -> bool:
        """The view's."""
        return self.base.has_level

    @property
    def resident_only(self) -> bool:
        """The view's."""
        return self.base.resident_only

    def init_own(self, spec: Spec) -> Any:
        """The state beside the view's; None for nothing."""
        return None

    def init(self, spec: Spec) -> Layered:
        """Both states."""
        return Layered(self.init_own(spec), self.base.init(spec))

    def view(
        self, state: Any, key: jax.Array, step: jax.Array, batch: Batch, predict: Predict
    ) -> tuple[jax.Array, Any]:
        """The view's."""
        images, view_state = self.base.view(state.view, key, step, batch, predict)
        return images, Layered(state.own, view_state)

    def level(self, step: jax.Array) -> jax.Array | float | None:
        """The view's."""
        return self.base.level(step)

    def metrics(self, state: Any, step: jax.Array) -> dict[str, jax.Array]:
        """The view's."""
        return self.base.metrics(state.view, step)

    def smooth(self, batch: Batch, level: Any) -> jax.Array:
        """The view's."""
        return self.base.smooth(batch, level)

    def scale_space(self, images: jax.Array) -> isvs.ScaleSpace:
        """The view's."""
        return self.base.scale_space(images)

    def at(self, space: isvs.ScaleSpace, level: Any) -> jax.Array:
        """The view's."""
        return self.base.at(space, level)

    def preprocess(self, batch: Batch) -> jax.Array:
        """The view's."""
        return self.base.preprocess(batch)
