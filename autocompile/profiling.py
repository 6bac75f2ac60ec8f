"""Floor 5: a profile without a search, for reading. Nothing is compiled. No torch."""

from __future__ import annotations

from typing import Any

import msgspec

from autocompile.core.errors import InvalidWorkload
from autocompile.core.job import Limits, LoaderTask, ProfileTask, Timing
from autocompile.core.outcome import Failure
from autocompile.core.pipeline import Loaders
from autocompile.core.profile import Profile
from autocompile.core.progress import Listener
from autocompile.core.units import format_duration
from autocompile.core.words import words_of
from autocompile.core.workload import Workload
from autocompile.report.profile import profile_lines
from autocompile.runner.local import LocalRunner
from autocompile.scratch import Scratch
from autocompile.search.errand import reply_to
from autocompile.search.loaders import with_loaders
from autocompile.tuning import Source

# The usual duration. Some twenty calls of the model come on top, whose duration only the child process finds out.
USUAL_S = 30.0
_LIMIT_S = 600.0
# The remaining budget that `with_loaders` is given: it spends a tenth of it on other settings of a DataLoader.
_LOADERS_LEFT_S = 80.0
_TIMING = Timing(precision=0.02, limit_s=3.0)


class ReadableProfile(Profile, tag="profile", frozen=True, kw_only=True):
    """A profile together with its workload; `print` shows it as text."""

    workload: Workload

    def __str__(self) -> str:
        notes = (f"note: {note}" for note in self.notes)
        return "\n".join((self.workload.name, *(f"  {line}" for line in (*profile_lines(self, self.workload), *notes))))


def profile_workload(source: Source, listener: Listener) -> ReadableProfile:
    """Profile the workload of `source` in a child process, in about 30 s and 20 calls of the model.

    Raises InvalidWorkload for faults that the caller can fix. No child process is left running.
    """
    listener.on_stage("profile")
    listener.on_task("profile of the baseline")
    with (
        Scratch() as work,
        LocalRunner(work / "jobs", work / "toolchain", on_phase=listener.on_phase) as runner,
    ):
        workload = source(runner, work / "workload", _LIMIT_S)
        listener.on_workload(workload)
        runner.preload(workload)
        task = ProfileTask(workload, str(work / "reference.pt"), _TIMING, seed=0, depth="full")
        reply = reply_to(runner, task, Limits(total_s=_LIMIT_S), Profile, cache="profile")
        if isinstance(reply, Failure):
            raise _fault(reply, workload)

        def try_loaders(task: LoaderTask, limits: Limits) -> Loaders | Failure:
            listener.on_task("loader settings")
            return reply_to(runner, task, limits, Loaders, cache="loader")

        found = with_loaders(reply, workload, _LOADERS_LEFT_S, try_loaders)
    fields: dict[str, Any] = msgspec.structs.asdict(found)
    return ReadableProfile(**fields, workload=workload)


def _fault(failure: Failure, workload: Workload) -> InvalidWorkload:
    if failure.kind == "invalid":
        return InvalidWorkload(failure.message)
    words = words_of(workload.kind)
    if failure.kind == "timeout":
        return InvalidWorkload(
            f"took longer than {format_duration(_LIMIT_S)}, in phase {failure.stage}",
            where=workload.name,
            remedy=f"give smaller {words.input}",
        )
    return InvalidWorkload(
        f"{words.fails}: {failure.message}", where=workload.name, remedy=f"{words.try_it} until it runs"
    )
