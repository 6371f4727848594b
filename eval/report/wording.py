"""How names, numbers and flags read in a report."""

from eval.report.read import Row

SUITES = {
    "clean": "Clean images",
    "corruptions": "Corruptions",
    "adversarial": "Adversarial attacks",
    "lowres": "Low resolution",
    "frequency": "Frequency components",
    "runtime": "Running time",
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
    """One row in words, such as ``PGD, ε = 8/255, exact``."""
    parts = [attack(row.name) if row.suite == "adversarial" else plain(row.name)]
    if row.severity is not None:
        parts.append(f"severity {row.severity:g}")
    if row.epsilon is not None:
        parts.append(f"ε = {epsilon(row.epsilon)}")
    if row.attacker:
        parts.append(attacker(row.attacker))
    elif row.smoothed is not None:
        parts.append("smoothed" if row.smoothed else "raw")
    if row.suite == "clean" and row.sparsity is not None:
        parts.append(f"level {row.sparsity:g}")
    return ", ".join(parts)
