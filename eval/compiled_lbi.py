"""The iteration as a compiled C loop (`lbi_peer.c`), built at run time: the yardstick for what one core can do."""

import ctypes
import dataclasses
import pathlib
import shutil
import subprocess
import tempfile
import time

import numpy as np

from eval.peers import step_size

_SOURCE = pathlib.Path(__file__).with_name("lbi_peer.c")
# Division and square root stay those of IEEE; without the last two flags gcc does not vectorise them.
_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math")
# Which one is faster depends on the processor, so both are tried, and the faster one is the peer.
_FURTHER_FLAGS: tuple[tuple[str, ...], ...] = ((), ("-mprefer-vector-width=512",))
_ALIGNMENT = 64


class NoCompilerError(RuntimeError):
    """The C loop cannot be built here; the message says why."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """The C loop, built for one image size ``(height, width, channels)``."""

    shape: tuple[int, int, int]
    command: str
    library: ctypes.CDLL


class CompiledLBI:
    """One image ``[H, W, C]`` in the C loop, from ``u = z = 0``."""

    def __init__(self, image: np.ndarray, loop: Loop, kappa: float = 5.0) -> None:
        if image.shape != loop.shape:
            raise ValueError(f"the loop was built for {loop.shape}, got an image {image.shape}")
        height, width, channels = image.shape
        self._width = width
        self._kappa, self._alpha = kappa, step_size(height, width, kappa)
        self._iterate = loop.library.iterate
        self._iterate.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_float] * 2 + [ctypes.c_int]
        self._iterate.restype = None
        self._u = _aligned_zeros((height, channels, loop.library.roomy_row_floats()))
        row = loop.library.row_floats()
        self._x, self._down, self._right = (
            _aligned_zeros((height, channels, row)) for _ in range(3)
        )
        self._x[:, :, :width] = image.transpose(0, 2, 1)

    def iterate(self, steps: int) -> None:
        """Advances the image."""
        arrays = (self._u, self._down, self._right, self._x)
        self._iterate(*(a.ctypes.data for a in arrays), self._kappa, self._alpha, steps)

    @property
    def u(self) -> np.ndarray:
        """float32 ``[H, W, C]``."""
        return self._u[:, :, : self._width].transpose(0, 2, 1)

    def support(self) -> tuple[np.ndarray, np.ndarray]:
        """The edges whose ``gamma`` is not zero: bool ``[H-1, W]`` and ``[H, W-1]``."""
        down, right = ((z**2).sum(axis=1) > 1 for z in (self._down, self._right))
        return down[:-1, : self._width], right[:, : self._width - 1]


def build_loop(height: int, width: int, channels: int) -> Loop:
    """Compiles the loop for an image size, with the flags that are fastest here.

    Raises:
      NoCompilerError: there is no C compiler, or it fails.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("no C compiler (gcc or cc) on the path")
    shape = (height, width, channels)
    loops, complaints = [], []
    for further in _FURTHER_FLAGS:
        try:
            loops.append(_compile(compiler, (*_FLAGS, *further), shape))
        except subprocess.CalledProcessError as error:
            complaints.append(error.stderr.strip())
    if not loops:
        raise NoCompilerError(f"{compiler} failed: {complaints[0]}")
    return min(loops, key=_seconds)


def _compile(compiler: str, flags: tuple[str, ...], shape: tuple[int, int, int]) -> Loop:
    names = ("HEIGHT", "WIDTH", "CHANNELS")
    sizes = [f"-D{name}={size}" for name, size in zip(names, shape, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        built = pathlib.Path(folder) / "lbi_peer.so"
        command = [
            compiler,
            *flags,
            *sizes,
            "-fPIC",
            "-shared",
            "-o",
            str(built),
            str(_SOURCE),
            "-lm",
        ]
        subprocess.run(command, check=True, capture_output=True, text=True)
        # Once loaded it stays loaded, file or no file.
        library = ctypes.CDLL(str(built))
    return Loop(shape, " ".join((pathlib.Path(compiler).name, *flags)), library)


def _seconds(loop: Loop) -> float:
    """The least time of a few short runs, for choosing between builds."""
    image = np.random.default_rng(0).random(loop.shape, dtype=np.float32)
    trial = CompiledLBI(image, loop)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        trial.iterate(200)
        times.append(time.perf_counter() - start)
    return min(times)


def _aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """float32 zeros that start at a cache line, as the loop's vector loads want them."""
    size = int(np.prod(shape))
    room = np.zeros(size + _ALIGNMENT // 4, np.float32)
    start = (-room.ctypes.data % _ALIGNMENT) // 4
    return room[start : start + size].reshape(shape)
