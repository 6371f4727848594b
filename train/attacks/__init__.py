"""Attacks within an l-infinity ball: FGSM, PGD, APGD and Square.

An attack is a frozen value that is called on a batch, and jittable from end to end:

    outcome = jax.jit(lambda keys, x, y, epsilon: attacks.PGD(steps=20)(logits, keys, x, y, epsilon))(
        keys, images, labels, 8 / 255
    )
    accuracy = outcome.right.mean()

`logits(key, images)` must be the network in evaluation mode. What an attack draws for an image comes from the image's
own key, so that neither the batch nor the number of devices changes what is found. Changing epsilon does not compile
again.
"""

from collections.abc import Callable

from train.attacks.apgd import APGD
from train.attacks.pgd import PGD, fgsm, perturb
from train.attacks.search import Outcome
from train.attacks.square import Square
from train.attacks.victim import Logits

__all__ = ["APGD", "PGD", "Attack", "Logits", "Outcome", "Square", "fgsm", "perturb"]

# (logits, keys [B], images [B, H, W, C], labels [B], epsilon) -> outcome
Attack = Callable[..., Outcome]
