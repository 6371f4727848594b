"""The suites by name; a new one is one file here and one line below.

A suite is a module with `tasks(subject, options, judge)`, what to measure batch by batch, and
`summarise(options, found)`, the rows that follow from those (means, worst cases).
"""

from types import ModuleType

from eval.suites import adversarial, clean, corrupted, frequency, lowres, runtime

SUITES: dict[str, ModuleType] = {
    "clean": clean,
    "corruptions": corrupted,
    "adversarial": adversarial,
    "lowres": lowres,
    "frequency": frequency,
    "runtime": runtime,
}

NAMES = tuple(SUITES)
