"""A study of cleaning: our smoothing beside the denoisers that one would otherwise put before a network.

`python -m eval.cleaning fit-peers` chooses the strengths of the denoisers on training images, and `table` compares all
on noisy test images. This module imports nothing, so that the processes of the pool start without JAX.
"""
