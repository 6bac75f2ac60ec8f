"""Whether another setting of the DataLoader has batches ready sooner, where a training step waits for them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from autocompile.core.job import Limits, LoaderTask
from autocompile.core.outcome import Failure
from autocompile.core.pipeline import InputPipeline, Loaders
from autocompile.core.profile import Profile
from autocompile.core.units import format_duration
from autocompile.core.workload import Workload

# Runs the task in a child, and returns its reply.
Ask = Callable[[LoaderTask, Limits], Loaders | Failure]

# If loading takes less than this share of a step, other settings are not tried.
_WORTH_TRYING = 0.05
_BUDGET_SHARE, _LONGEST_S = 0.1, 15.0
# The time for workers to start and to end, in addition to the steps.
_STARTING_S = 60.0
# The steps that must fit into the time: the user's own setting and another one, with some steps of each.
_FEWEST_STEPS = 12


def with_loaders(profile: Profile, workload: Workload, left_s: float, ask: Ask) -> Profile:
    """Return the profile with the results of other DataLoader settings, if a training step waits for its batches.

    `left_s` is the time left for the whole run; the settings take at most a tenth of it.
    """
    pipeline = profile.pipeline
    if workload.training is None or pipeline is None or profile.input_share < _WORTH_TRYING or profile.loaders:
        return profile
    seconds = min(_LONGEST_S, _BUDGET_SHARE * left_s)
    problem = _problem(profile, pipeline, seconds)
    if problem:
        return replace(profile, loaders=Loaders(problem=problem))
    limits = Limits(total_s=min(2 * seconds + _STARTING_S, max(1.0, left_s)))
    reply = ask(LoaderTask(workload, seconds), limits)
    if isinstance(reply, Failure):
        reply = Loaders(problem=reply.message.splitlines()[0])
    return replace(profile, loaders=reply)


def _problem(profile: Profile, pipeline: InputPipeline, seconds: float) -> str:
    step_s = profile.baseline_ms.value / 1e3 / (1 - profile.input_share)
    if pipeline.stays or _FEWEST_STEPS * step_s <= seconds:
        return pipeline.stays
    return f"a step takes {format_duration(step_s)}, too long for the {format_duration(seconds)} to try other settings"
