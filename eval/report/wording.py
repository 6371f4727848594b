"""How names, numbers and flags read in a report."""

from collections.abc import Iterable

from eval.report.read import Row

SUITES = {
    "clean": "Clean images",
    "corruptions": "Corruptions",
    "adversarial": "Adversarial attacks",
    "lowres": "Low resolution",
    "frequency": "Frequency components",
    "runtime": "Running time",
}

# What is done to test images first, in the order of the columns.
PREPROCESSING = {
    "none": "as they are",
    "paper": "smoothed (paper)",
    "soft": "soft",
    "auto": "automatic",
}
# At the end of a line in a chart there is little room.
IN_CHARTS = {"none": "as is", "paper": "smoothed", "soft": "soft", "auto": "auto"}

PREPROCESSING_MEANINGS = {
    "none": "test images go to the network as they are.",
    "paper": "what the run's method does to test images: smoothing at the run's level as the paper does it, unless a "
    "note here says otherwise, or blurring for blur models.",
    "soft": "smoothing at level 0.4 by ties that give (stiffness 5), so that regions keep their shading. Speckle is "
    "removed first.",
    "auto": "speckle is removed, and each image is smoothed as much as its own noise asks for: a clean one not at "
    "all, nor a large one in strong noise.",
}

ATTACKS = {
    "fgsm": "FGSM",
    "pgd": "PGD",
    "apgd_ce": "APGD-CE",
    "apgd_dlr": "APGD-DLR",
    "apgd_targeted": "APGD-T",
    "square": "Square",
    "worst": "worst case",
}

# From the weakest to the strongest; the last is a summary of those that attack the defended network.
ATTACKERS = {
    "none": "bare network",
    "unaware": "unaware",
    "straight-through": "straight-through",
    "exact": "exact",
    "black-box": "black-box",
    "any": "any",
}

ATTACKER_MEANINGS = {
    "none": "attacks the network without smoothing, and that network is tested.",
    "unaware": "attacks the network as if there were no smoothing; the images are then smoothed and tested. The paper "
    "reports this one. It is the weakest: a real attacker would know the defence.",
    "straight-through": "knows the smoothing, and pretends in the backward pass that it is the identity (BPDA).",
    "exact": "differentiates through the smoothing itself. This is the honest measure of the defence.",
    "black-box": "sees only the outputs of the defended network, no gradients.",
    "any": "all attackers of the smoothed network together: an image counts as right only if it survives each.",
}

WHICH_TO_QUOTE = (
    "The paper reports the unaware attacker, who does not know of the smoothing. The honest measure of the defence is "
    "the exact attacker, and the worst case over all that attack the defended network."
)
ADAPTIVE = (
    "Automatic smoothing judges by the image that it is given how much to smooth, and the attacker makes that image: "
    "adaptive preprocessing can be fooled. In the column “automatic” the exact attacker's row is the one to read; that "
    "of the unaware attacker says nothing about a defence that is known."
)
ADAPTIVE_UNTESTED = (
    "The exact attacker did not attack the automatic smoothing. Without that row the column “automatic” does not "
    "measure a defence."
)
NOT_ELIGIBLE = (
    "Smoothing is an optimisation loop at test time. A defence with such a loop is not eligible for RobustBench, so no "
    "number here can be put beside its leaderboard."
)

FLAG_MEANINGS = {
    "zero gradients": "For some images the attack had no gradient to follow. The defence hides its gradients "
    "there, and the accuracy is likely too high.",
    "nan gradients": "Some gradients were not numbers. The attack was cut short, and the accuracy is likely too high.",
    "black box beats white box": "An attack without gradients did more harm than one with them. The gradients mislead, "
    "and the accuracy under gradient attacks is too high.",
    "does not fall to zero": "Even a very large epsilon leaves accuracy, where any attack that works leaves none. The "
    "attack fails for another reason than the defence.",
    "loss still rising": "The loss was still going up at the last step. More steps would do more harm.",
}
UNKNOWN_FLAG = "This report has no explanation for this flag; see the code that set it."


def preprocess(name: str, level: float | None = None) -> str:
    """What is done to test images; with the level of the paper's smoothing if it is given."""
    if name == "paper" and level:
        return f"smoothed at {level:g} (paper)"
    return PREPROCESSING.get(name, plain(name))


def preprocessings(rows: Iterable[Row]) -> list[str]:
    """What is done to the images of some rows, by name, in the order of the columns."""
    return ordered({row.preprocess for row in rows if row.preprocess}, PREPROCESSING)


def ordered(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Known names in their order, then others by letters."""
    order = list(known)
    return sorted(names, key=lambda name: (place(name, order), name))


def place(name: str, known: Iterable[str]) -> int:
    """The number of a name among known ones; others come after them."""
    names = list(known)
    return names.index(name) if name in names else len(names)


def attack(name: str) -> str:
    """The attack as the literature writes it."""
    return ATTACKS.get(name, plain(name))


def attacker(name: str | None) -> str:
    """Who attacks; empty for None."""
    return ATTACKERS.get(name, name) if name else ""


def plain(name: str) -> str:
    """``gaussian_noise`` as two words."""
    return name.replace("_", " ").replace("jpeg", "JPEG")


def suite(name: str) -> str:
    """The heading of a suite."""
    return SUITES.get(name, plain(name).capitalize())


def epsilon(value: float | None) -> str:
    """A strength in parts of 255 where it is a whole number of them."""
    if value is None:
        return ""
    parts = round(value * 255)
    return f"{parts}/255" if abs(value * 255 - parts) < 0.01 else f"{value:.4g}"


def percent(value: float) -> str:
    """Two digits, as the paper has them."""
    return f"{value:.2f}"


def seconds(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def count(value: float) -> str:
    """A number of images, with separators."""
    return f"{value:,.0f}"


def describe(row: Row) -> str:
    """One row in words, such as ``PGD, ε = 8/255, exact, soft``."""
    parts = [attack(row.name) if row.suite == "adversarial" else plain(row.name)]
    if row.severity is not None:
        parts.append(f"severity {row.severity:g}")
    if row.epsilon is not None:
        parts.append(f"ε = {epsilon(row.epsilon)}")
    if row.attacker:
        parts.append(attacker(row.attacker))
    if row.preprocess and row.attacker != "none":
        parts.append(preprocess(row.preprocess, row.sparsity if row.suite == "clean" else None))
    return ", ".join(parts)
