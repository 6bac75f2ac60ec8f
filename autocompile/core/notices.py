"""What the user should know before the budget is spent: which facts these are, and in which words.

Each is told as soon as it is known, and kept in the document; on one subject there is one notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from autocompile.core.outcome import Contamination
from autocompile.core.profile import Profile
from autocompile.core.serde import Record
from autocompile.core.units import format_ms
from autocompile.core.workload import Workload

# Beside others that take more of a machine than this, timings take longer and say less.
BUSY_SHARE = 0.15


class Notice(Record, frozen=True):
    """One line, and the `subject` by which it is told once."""

    subject: str
    text: str


def of_load(busy_share: float) -> Iterator[Notice]:
    """Before anything of a run has started: what of the machine's CPU is in use, in 0..1, is others'."""
    if busy_share > BUSY_SHARE:
        yield _others(f"others use {busy_share:.0%} of this machine's CPU")


def of_workload(workload: Workload) -> Iterator[Notice]:
    """What capturing the model and its inputs showed."""
    yield from of_training(workload)
    if workload.script:
        yield Notice("script", workload.notes[0])
    if workload.left_out:
        yield Notice("inputs", workload.left_out)


def of_training(workload: Workload) -> Iterator[Notice]:
    """The mode, where it makes a difference or is not what the workload is for."""
    if workload.active_in_training:
        whose = "the model is" if workload.in_training_mode else "parts of the model are"
        active = "; ".join(workload.active_in_training)
        remedy = "call model.eval() first if it is to serve"
        yield Notice("training mode", f"{whose} in training mode: {active}; {remedy}")
    if workload.training and not workload.in_training_mode:
        why = "dropout drops nothing and no statistics of a batch are used"
        yield Notice("training mode", f"the model is in evaluation mode, so {why}; call model.train() first")


def of_profile(profile: Profile) -> Iterator[Notice]:
    """What the first calls of the baseline showed."""
    if profile.opaque_output:
        is_cache = "cache" in profile.opaque_output.lower()
        remedy = "call it with use_cache=False" if is_cache else "return tensors in a tuple, a list or a dict"
        why = "which no compiled program can return, so production would compile at its start"
        yield Notice("output", f"{profile.opaque_output}, {why}; {remedy}")
    if profile.random:
        drawn = "what is compiled draws other random numbers than the model from the same seed, distributed alike"
        yield Notice("random numbers", f"the model draws random numbers: {drawn}")
    if profile.contamination is not None and profile.contamination.noisy:
        yield _others(disturbance(profile.contamination))


def of_loading(profile: Profile) -> Iterator[Notice]:
    """That a step of training waits for its batches, and what can be done about it."""
    loaders, pipeline = profile.loaders, profile.pipeline
    if loaders is None or pipeline is None:
        return
    effect = "bounds" if profile.bound == "input" else "holds training up"
    waiting = f"{profile.input_share:.0%} of a step is spent waiting for the {pipeline.source}"
    bounds = f"the input pipeline {effect}: {waiting}"
    if loaders.problem:
        yield Notice("input", f"{bounds}; no other settings of it were tried: {loaders.problem}")
    elif loaders.better is None or loaders.own is None:
        yield Notice("input", f"{bounds}; none of the other settings of it that were tried is clearly better")
    else:
        better, own = loaders.better, loaders.own
        gain = f"a step takes {format_ms(better.step_ms)} in eager, and {format_ms(own.step_ms)} as it is given"
        yield Notice("input", f"{bounds}; with {pipeline.source}({better.setting}) {gain}")


def of_compiling(problem: str, *, others: bool = False) -> Iterator[Notice]:
    """Why `torch.compile` cannot be tried here, if anything is in the way; whether `others` than eager still can be."""
    if problem:
        rest = "torch.compile will not be tried" if others else "only eager will be tuned, nothing compiled"
        yield Notice("compiling", f"{rest}: {problem}")


def of_missing(installs: Mapping[str, str]) -> Iterator[Notice]:
    """Runtimes that could be tried as well if their libraries were there; the commands that install them, by name."""
    if installs:
        names = " and ".join(installs)
        yield Notice("runtimes", f"{names} would be tried, too, where installed: {'; '.join(installs.values())}")


def _others(told: str) -> Notice:
    return Notice("host", f"{told}: nothing will be called faster while they do; tune while it is quiet")


def of_disturbance() -> Iterator[Notice]:
    """The first time that a candidate was disturbed which was timed beside others that compile."""
    repeated = "a timing beside what compiles was disturbed, and repeated alone"
    yield Notice("lanes", f"{repeated}: from now on compiling is paused while anything is timed")


def of_refused(machine: str, reason: str) -> Iterator[Notice]:
    """A machine of the cluster that cannot work on this run."""
    yield Notice(f"machine {machine}", f"{machine} does not join: {reason}")


def disturbance(seen: Contamination) -> str:
    """What disturbed a timing on a noisy host, in words."""
    if seen.gpu_processes:
        return f"{seen.gpu_processes} other process{'es' * (seen.gpu_processes != 1)} use this GPU"
    if seen.throttled:
        return f"the clocks of this GPU are lowered ({seen.throttled})"
    if seen.waited_share is not None and seen.waited_share > seen.steal_share:
        return f"others kept the process that uses the GPU from a CPU for {seen.waited_share:.0%} of the time"
    return f"others use {max(seen.other_cpu_share, seen.steal_share):.0%} of this machine's CPU"


def of_sharing(runs: int) -> Iterator[Notice]:
    """At the opening of a study: so many other runs are at work on it."""
    if runs:
        state = f"{runs} other run{'s are' if runs != 1 else ' is'} at work on this study"
        yield Notice("sharing", f"{state}: trials are divided among all, and each packs its own recommendation")


def of_other_kinds(machines: Iterable[str]) -> Iterator[Notice]:
    """At the opening of a study: which other kinds of machines have one of this workload in the same storage."""
    for machine in machines:
        kept = f"this storage has a study of the workload for another kind of machine ({machine})"
        yield Notice(f"study for {machine}", f"{kept}: this run does not join it, as only ratios of one kind compare")
