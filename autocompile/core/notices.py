"""Notices: facts that the user should know before the budget is spent, and their wording.

Each notice is shown as soon as the fact is known, and kept in the document. There is at most one notice per subject.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from autocompile.core.goal import Goal
from autocompile.core.outcome import Contamination
from autocompile.core.profile import Profile
from autocompile.core.serde import Record
from autocompile.core.units import format_ms
from autocompile.core.words import words_of
from autocompile.core.workload import Workload

# If other processes use a larger share of the machine, timings take longer and are less precise.
BUSY_SHARE = 0.15


class Notice(Record, frozen=True):
    """One line of text, and its `subject`: a run shows one notice per subject."""

    subject: str
    text: str


def of_load(busy_share: float) -> Iterator[Notice]:
    """Yield a notice on the CPU's load, as a share in 0..1, before a run starts anything of its own."""
    if busy_share > BUSY_SHARE:
        yield _others(f"other processes use {busy_share:.0%} of this machine's CPU")


def of_workload(workload: Workload) -> Iterator[Notice]:
    """Yield the notices that arise from capturing the model and its inputs."""
    yield from of_training(workload)
    if workload.script:
        yield Notice("script", workload.notes[0])
    if workload.left_out:
        yield Notice("inputs", workload.left_out)


def of_calls(workload: Workload, given: Goal, used: Goal) -> Iterator[Notice]:
    """Yield a notice if the goal that is `used` has the number of calls of the script, as the `given` one has none."""
    if used.calls is not None and used.calls != given.calls:
        counted = f"{used.calls:,} {words_of(workload.kind).counted(used.calls)}"
        yield Notice("calls", f"the verdict is for {counted}, as many as the script makes; for others, give --calls N")


def of_prompts(share: float, enough_s: float) -> Iterator[Notice]:
    """Yield a notice that the budget is too small for the prompts, which take this share of generating."""
    said = f"prompts take {share:.0%} of generating, and the budget is too small to tune them as well"
    yield Notice("prompts", f"{said}; give a budget of {math.ceil(enough_s / 60)}m or more")


def of_training(workload: Workload) -> Iterator[Notice]:
    """Yield a notice on the model's mode (training or evaluation), if it does not suit the workload."""
    if workload.active_in_training:
        whose = "the model is" if workload.in_training_mode else "parts of the model are"
        active = "; ".join(workload.active_in_training)
        remedy = "call model.eval() first if you tune inference"
        yield Notice("training mode", f"{whose} in training mode: {active}; {remedy}")
    if workload.training and not workload.in_training_mode:
        why = "dropout is inactive and batch statistics are not used"
        yield Notice("training mode", f"the model is in evaluation mode, so {why}; call model.train() first")


def of_profile(profile: Profile) -> Iterator[Notice]:
    """Yield the notices that arise from the first calls of the baseline."""
    if profile.unpackable:
        yield Notice("arguments" if profile.opaque_input else "output", profile.unpackable)
    if profile.random:
        drawn = "from the same seed, compiled code draws other numbers than eager, from the same distribution"
        yield Notice("random numbers", f"the model draws random numbers: {drawn}")
    if profile.contamination is not None and profile.contamination.noisy:
        yield _others(disturbance(profile.contamination))


def of_loading(profile: Profile) -> Iterator[Notice]:
    """Yield a notice if training steps wait for their batches, with what can be done about it."""
    loaders, pipeline = profile.loaders, profile.pipeline
    if loaders is None or pipeline is None:
        return
    effect = "is the bottleneck" if profile.bound == "input" else "slows training down"
    waiting = f"{profile.input_share:.0%} of a step is spent waiting for the {pipeline.source}"
    bounds = f"the input pipeline {effect}: {waiting}"
    if loaders.problem:
        yield Notice("input", f"{bounds}; no other settings were tried: {loaders.problem}")
    elif loaders.better is None or loaders.own is None:
        yield Notice("input", f"{bounds}; no other setting that was tried is clearly better")
    else:
        better, own = loaders.better, loaders.own
        gain = f"a step takes {format_ms(better.step_ms)} in eager, instead of {format_ms(own.step_ms)} as given"
        yield Notice("input", f"{bounds}; with {pipeline.source}({better.setting}) {gain}")


def of_compiling(problem: str, *, others: bool = False) -> Iterator[Notice]:
    """Yield why `torch.compile` cannot be tried here, if so. `others`: whether other compiling runtimes can be."""
    if problem:
        rest = "torch.compile will not be tried" if others else "only eager configurations will be tried"
        yield Notice("compiling", f"{rest}: {problem}")


def of_missing(installs: Mapping[str, str]) -> Iterator[Notice]:
    """Yield a notice on runtimes whose libraries are not installed. `installs`: the install command by runtime."""
    if installs:
        names = " and ".join(installs)
        yield Notice("runtimes", f"{names} would also be tried if installed: {'; '.join(installs.values())}")


def _others(told: str) -> Notice:
    rest = "until that ends, no candidate will be called faster; tune while the machine is quiet"
    return Notice("host", f"{told}: {rest}")


def of_disturbance() -> Iterator[Notice]:
    """Yield a notice, the first time that compiling in parallel disturbed the timing of a candidate."""
    repeated = "compiling in parallel disturbed a timing, which was repeated alone"
    yield Notice("lanes", f"{repeated}: from now on, compiling is paused while a candidate is timed")


def of_refused(machine: str, reason: str) -> Iterator[Notice]:
    """Yield a notice on a machine of the cluster that cannot take part in this run."""
    yield Notice(f"machine {machine}", f"{machine} does not join: {reason}")


def disturbance(seen: Contamination) -> str:
    """Return what disturbed a timing on a noisy host, in words."""
    if seen.gpu_processes:
        return f"{seen.gpu_processes} other process{'es' * (seen.gpu_processes != 1)} use this GPU"
    if seen.throttled:
        return f"the clocks of this GPU are lowered ({seen.throttled})"
    if seen.waited_share is not None and seen.waited_share > seen.steal_share:
        return f"the process that uses the GPU waited for a CPU {seen.waited_share:.0%} of the time"
    return f"other processes use {max(seen.other_cpu_share, seen.steal_share):.0%} of this machine's CPU"


def of_sharing(runs: int) -> Iterator[Notice]:
    """Yield a notice if other runs are working on the study that was opened."""
    if runs:
        state = f"{runs} other run{'s are' if runs != 1 else ' is'} working on this study"
        yield Notice("sharing", f"{state}: they share the trials, and each run packs its own recommendation")


def of_other_kinds(machines: Iterable[str]) -> Iterator[Notice]:
    """Yield a notice for each study of this workload in the same storage that is for another kind of machine."""
    for machine in machines:
        kept = f"this storage has a study of the workload for another kind of machine ({machine})"
        why = "as ratios from different kinds of machines cannot be compared"
        yield Notice(f"study for {machine}", f"{kept}: this run does not join it, {why}")
