"""Figures of the study, each a function of arrays and a command: `python -m eval.main figure NAME`."""

from eval.figures import cleaning, components, explain, fourier, regions, scale_path, spectra
from eval.figures.base import FigureCommand
from eval.figures.panels import explanation_panels

__all__ = ["FIGURES", "FigureCommand", "explanation_panels"]

FIGURES: dict[str, FigureCommand] = {
    "path": FigureCommand(
        "an image at several levels",
        scale_path.Options,
        scale_path.run,
        "path photo.png --levels 0.2 0.6 1.0",
    ),
    "regions": FigureCommand(
        "how an image becomes regions, and regions their means",
        regions.Options,
        regions.run,
        "regions photo.png --level 0.1",
    ),
    "cleaning": FigureCommand(
        "an image with noise, and what each preprocessing makes of it",
        cleaning.Options,
        cleaning.run,
        "cleaning photo.png --sigma 0.1",
    ),
    "fourier": FigureCommand(
        "what smoothing does to the Fourier amplitudes of a data set",
        fourier.Options,
        fourier.run,
        "fourier --dataset cifar10 --data-dir DIR",
    ),
    "spectra": FigureCommand(
        "spectra of a network's first features over its training",
        spectra.Options,
        spectra.run,
        "spectra --run runs/a",
    ),
    "components": FigureCommand(
        "low and high frequencies of some images",
        components.Options,
        components.run,
        "components --dataset shapes --count 4",
    ),
    "explain": FigureCommand(
        "Grad-CAM and relevance on original, blurred and preprocessed images",
        explain.Options,
        explain.run,
        "explain --run runs/a --out explain.pdf",
    ),
}
