"""Where a step waits for its batches: whether another setting of the DataLoader has them ready sooner."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.job import Limits, LoaderTask
from autocompile.core.outcome import Failure
from autocompile.core.pipeline import Loaders
from autocompile.core.profile import Profile
from autocompile.core.units import format_duration
from autocompile.search.run import Bench

# Below this share of a step, nothing is to be gained by it.
_WORTH_TRYING = 0.05
_BUDGET_SHARE, _LONGEST_S = 0.1, 15.0
# So long have workers to start and to end, beside the steps.
_STARTING_S = 60.0
# What has to fit: the user's own setting and another one, with some steps of each.
_FEWEST_STEPS = 12


def with_loaders(bench: Bench, profile: Profile) -> Profile:
    """The profile, with what other settings of a DataLoader make of a step, where waiting takes a share of it."""
    pipeline = profile.pipeline
    if bench.workload.training is None or pipeline is None or profile.input_share < _WORTH_TRYING or profile.loaders:
        return profile
    seconds = min(_LONGEST_S, _BUDGET_SHARE * bench.ledger.left_s())
    step_s = profile.baseline_ms.value / 1e3 / (1 - profile.input_share)
    loaders = Loaders(problem=pipeline.stays)
    if not pipeline.stays and _FEWEST_STEPS * step_s > seconds:
        took = f"a step takes {format_duration(step_s)} and there are {format_duration(seconds)} for it"
        loaders = Loaders(problem=took)
    elif not pipeline.stays:
        loaders = _tried(bench, seconds)
    return replace(profile, loaders=loaders)


def _tried(bench: Bench, seconds: float) -> Loaders:
    bench.listener.on_task("loader settings")
    limits = Limits(total_s=min(2 * seconds + _STARTING_S, max(1.0, bench.ledger.left_s())))
    reply = bench.reply_to(LoaderTask(bench.workload, seconds), limits, Loaders, cache="loader")
    if isinstance(reply, Failure):
        return Loaders(problem=reply.message.splitlines()[0])
    return reply
