"""How much the benchmark of smoothing measures."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Batches, repetitions and image sides.

    Attributes:
      images: 32x32 colour images in a batch.
      path_images: of how many of them the iterations to a level are counted.
      rounds: repetitions of which the median is taken.
      compiled_steps: iterations of the C loop in a repetition.
      numpy_images: images in a batch of the NumPy iteration, and for the denoisers in a repetition.
      numpy_steps: its iterations in a repetition.
      step_batches: batches in which our LBI step is tried; the best one counts.
      steps: its steps in a repetition.
      growth: image sides, each with a number of images; the first is what the others are compared with.
      table_side: side of the image of the paper's running-time table.
      table_steps: its iterations.
      memory_images: the batch whose peak memory is taken.
      masks: image sides, each with a number of masks for components.
    """

    images: int = 256
    path_images: int = 64
    rounds: int = 9
    compiled_steps: int = 4000
    numpy_images: int = 32
    numpy_steps: int = 40
    step_batches: tuple[int, ...] = (64, 128, 256)
    steps: int = 100
    growth: tuple[tuple[int, int], ...] = ((32, 256), (224, 8), (512, 2))
    table_side: int = 84
    table_steps: int = 15_000
    memory_images: int = 1024
    masks: tuple[tuple[int, int], ...] = ((32, 256), (224, 8), (512, 2))


FULL = Sizes()
QUICK = Sizes(
    images=32,
    path_images=4,
    rounds=3,
    compiled_steps=500,
    numpy_images=8,
    numpy_steps=10,
    step_batches=(16,),
    steps=20,
    growth=((32, 32), (64, 8)),
    table_side=16,
    table_steps=500,
    memory_images=64,
    masks=((32, 4),),
)
