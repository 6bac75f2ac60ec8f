"""The exceptions that autocompile raises.

AutocompileError
├── UsageError                  a fault that the caller can fix; the command line exits with status 2
│   ├── InvalidValue            a duration, count or option that cannot be read
│   ├── InvalidStrategy         a preset with an unknown or ill-typed key
│   ├── InvalidWorkload         a script, model or inputs that cannot be tuned
│   ├── OutputConflict          the output directory contains something else
│   ├── InvalidRecommendation   a directory without a readable recommendation
│   │   └── InvalidArtifact     files that are damaged, missing or changed, or that other users may change
│   ├── NotExportable           a model that cannot be written in the requested format
│   ├── BudgetTooSmall          the budget ended before the baseline was measured
│   └── GoalUnmet               no measured candidate meets the goal's constraints, with on_unmet="error"
└── RunnerError                 the process that starts trials failed
    └── MachineLost             one of several machines no longer answers

A fault inside a trial is never raised as one of these. It is a `Failure` record, because it crosses a process boundary
and must not end the study.
"""

from __future__ import annotations

from typing import Any


class AutocompileError(Exception):
    """Base class of all exceptions of autocompile."""


class UsageError(AutocompileError):
    """A fault that the caller can fix. The message is one line.

    Args:
        fault: What is wrong.
        where: The file, argument or attribute.
        remedy: What to do next.
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
    """The output directory contains something that this run must not change."""


class InvalidRecommendation(UsageError):
    """A directory without a readable recommendation, or a recommendation that does not fit."""


class InvalidArtifact(InvalidRecommendation):
    """Files that are not the ones that were packed, or that other users may change; none of them was opened."""


class NotExportable(UsageError):
    """A model that cannot be written in a format, or whose file computes wrong outputs."""


class BudgetTooSmall(UsageError):
    """The budget ended before the baseline was measured."""


class GoalUnmet(UsageError):
    """No measured candidate meets the goal's constraints; `recommendation` holds the one that comes nearest."""

    def __init__(self, fault: str, *, recommendation: Any) -> None:
        self.recommendation = recommendation
        super().__init__(fault, where="goal", remedy="relax it, or give a larger budget")


class RunnerError(AutocompileError):
    """The process that starts trials could not be started, or it died."""


class MachineLost(RunnerError):
    """A machine no longer answers. This says nothing about the candidates that were running there."""
