"""Families of studies: they measured the same, for other goals or over other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autocompile.core.outcome import Failure
from autocompile.core.trial import Trial
from autocompile.search.study.kept import KeptStudy


@dataclass(frozen=True)
class StudyName:
    """The parts of a study's `name`, the meaning of its values (`metric`), and further `attributes`.

    Studies of one `family` measured the same, for other goals or over other values, so they share their trials. The
    families of one `workload` differ in the machine that measured, or in what was accepted as correct.
    """

    workload: str
    machine: str
    acceptance: str
    search: str
    metric: str
    attributes: dict[str, str]

    @property
    def family(self) -> str:
        """What was measured, on what kind of machine, and what was accepted as correct."""
        return f"{self.workload} {self.machine} {self.acceptance}"

    @property
    def name(self) -> str:
        """The study's name, unique for the family, the searched space and the goal."""
        return f"{self.family} {self.search}"


def known_to_others(about: StudyName, study: KeptStudy) -> Mapping[str, Trial]:
    """Return the completed trials of the family's other studies, by plan.

    Trials that were stopped early are left out, as that depended on the goal of their study.
    """
    by_plan: dict[str, Trial] = {}
    for name in study.others():
        if name.startswith(f"{about.family} "):
            for kept in study.another(name).told().values():
                if not _depended_on_its_goal(kept.trial):
                    by_plan.setdefault(kept.trial.plan.key, kept.trial)
    return by_plan


def kinds_beside(about: StudyName, study: KeptStudy) -> list[str]:
    """Return, in words, the other kinds of machines on which studies of this workload were made."""
    kinds: dict[str, str] = {}
    for name in study.others():
        machine = name.removeprefix(f"{about.workload} ").split(" ")[0]
        if name.startswith(f"{about.workload} ") and machine not in (about.machine, *kinds):
            attributes = study.another(name).attributes()
            kinds[machine] = f"{attributes.get('device', 'unknown')}, torch {attributes.get('torch', 'unknown')}"
    return list(kinds.values())


def _depended_on_its_goal(trial: Trial) -> bool:
    if isinstance(trial.outcome, Failure):
        return trial.outcome.kind == "timeout"
    return trial.outcome.decided
