"""Inverse-scale variational sparsification: smooth images to their large-scale structure, in JAX."""

from isvs.automatic import AutoLevel
from isvs.components import connected_components
from isvs.flow import Flow
from isvs.lbi import LBI, LBIPath, lbi_path
from isvs.noise import noise_level
from isvs.projection import component_means
from isvs.scale_space import ScaleSpace, encode
from isvs.smoothing import smooth
from isvs.speckle import Speckle, remove_speckle

__version__ = "0.1.0"

__all__ = [
    "LBI",
    "AutoLevel",
    "Flow",
    "LBIPath",
    "ScaleSpace",
    "Speckle",
    "component_means",
    "connected_components",
    "encode",
    "lbi_path",
    "noise_level",
    "remove_speckle",
    "smooth",
]
