"""Everything that autocompile raises on purpose.

AutocompileError
├── UsageError                  the caller can mend it; the command line exits with 2
│   ├── InvalidValue            a duration, count or option that cannot be read
│   ├── InvalidStrategy         a preset with an unknown or ill-typed key
│   ├── InvalidWorkload         a script, model or inputs that cannot be tuned
│   ├── OutputConflict          the output directory holds something else
│   ├── InvalidRecommendation   a directory that does not hold a readable recommendation
│   │   └── InvalidArtifact     damaged, incomplete, changed, or where others may change it: nothing of it was opened
│   ├── NotExportable           a model that cannot be had in the format that was asked for
│   ├── BudgetTooSmall          not even the baseline fits
│   └── GoalUnmet               nothing that was measured keeps the goal's constraints, and that was to be an error
└── RunnerError                 the machinery that runs children broke
    └── MachineLost             one of several machines does not answer any more

A fault inside a trial is never an exception here: it is a `Failure` record, because it crosses a
process boundary and must not end the study.
"""

from __future__ import annotations

from typing import Any


class AutocompileError(Exception):
    """Base of all; catch it to catch everything that autocompile raises on purpose."""


class UsageError(AutocompileError):
    """A fault the caller can mend, told in one line.

    Parameters: `fault`, what is wrong; `where`, the file, argument or attribute; `remedy`, the next
    thing to do.
    """

    def __init__(self, fault: str, *, where: str = "", remedy: str = "") -> None:
        self.fault, self.where, self.remedy = fault, where, remedy
        located = f"{where}: {fault}" if where else fault
        super().__init__(f"{located}; {remedy}" if remedy else located)


class InvalidValue(UsageError):
    """A duration, count or option that cannot be read."""


class InvalidStrategy(UsageError):
    """A strategy preset that cannot be used."""


class InvalidWorkload(UsageError):
    """A script, model or inputs that cannot be tuned."""


class OutputConflict(UsageError):
    """The output directory holds something that this run must not touch."""


class InvalidRecommendation(UsageError):
    """A directory that does not hold a readable recommendation."""


class InvalidArtifact(InvalidRecommendation):
    """Files that are not the ones that were packed, or that others may change; nothing of them was opened."""


class NotExportable(UsageError):
    """A model that cannot be had in a format, or whose file does not compute what the model computes."""


class BudgetTooSmall(UsageError):
    """The budget ended before the baseline was measured."""


class GoalUnmet(UsageError):
    """Nothing that was measured keeps the goal's constraints; `recommendation` is what comes nearest."""

    def __init__(self, fault: str, *, recommendation: Any) -> None:
        self.recommendation = recommendation
        super().__init__(fault, where="goal", remedy="relax it, or give a larger budget")


class RunnerError(AutocompileError):
    """The process that starts trials could not be started or died."""


class MachineLost(RunnerError):
    """A machine does not answer any more: what was under way there says nothing of any candidate."""
