"""The optimiser of a configuration, from optax."""

from typing import Any

import jax
import optax

from train.config import Config


def schedule(config: Config, steps_per_epoch: int) -> optax.Schedule:
    """The learning rate by step: up from 0 along a line, then down to 0 along a cosine."""
    assert config.epochs and config.learning_rate and config.warmup_epochs is not None
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=config.learning_rate,
        warmup_steps=max(1, round(config.warmup_epochs * steps_per_epoch)),
        decay_steps=max(2, config.epochs * steps_per_epoch),
    )


def build(config: Config, steps_per_epoch: int) -> optax.GradientTransformation:
    """SGD or AdamW with clipping and weight decay on kernels.

    Args:
        config: filled by the recipe.
        steps_per_epoch: for the schedule.
    """
    assert config.weight_decay is not None
    rate = schedule(config, steps_per_epoch)
    parts = [optax.clip_by_global_norm(config.clip_norm)] if config.clip_norm else []
    if config.optimizer == "adamw":
        parts.append(optax.adamw(rate, weight_decay=config.weight_decay, mask=kernels))
    else:
        parts.append(optax.add_decayed_weights(config.weight_decay, mask=kernels))
        parts.append(optax.sgd(rate, momentum=config.momentum, nesterov=True))
    return optax.chain(*parts)


def kernels(params: Any) -> Any:
    """True for the weights of convolutions and linear layers, False for all else."""
    return jax.tree.map_with_path(
        lambda path, _: (
            "kernel" in jax.tree_util.keystr(path, simple=True, separator="/").split("/")
        ),
        params,
    )
