"""Which of the modules that a script calls is tuned, and on what."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.core.workload import ScriptEntry
from autocompile.workload.samples import Sample
from autocompile.workload.watching.sight import Sight
from autocompile.workload.watching.tally import Tally

# What takes less of the script's time is not told of.
_WORTH_TELLING = 0.05


@dataclass(frozen=True)
class Chosen:
    """A module, its calls, and what was seen of them; `notes` are worth telling."""

    module: nn.Module
    samples: tuple[Sample, ...]
    entry: ScriptEntry
    notes: tuple[str, ...]


def chosen(sight: Sight, name: str, names: Mapping[str, Any], where: str, *, whole: bool) -> Chosen:
    """The module of that name, or the one that took most of the time, in those of its calls that train nothing.

    `names`: the script's variables. `whole`: whether it ran to its end. Raises InvalidWorkload where no module was
    called, none has that name, or the one that is to be tuned is only trained.
    """
    if sight.began is None:
        raise InvalidWorkload(
            "called no torch module", where=where, remedy="define `model` and `inputs`, or a function `workload()`"
        )
    seconds = time.perf_counter() - sight.began
    if not name:
        _check_not_a_training(sight, where)
    tallies = [tally for (_key, learns), tally in sight.tallies.items() if not (learns and sight.learns)]
    subjects = [tally for tally in tallies if tally.kept]
    own = max(_named(subjects, name, names, where), key=lambda tally: tally.seconds, default=None)
    if own is None:
        said = "calls no module that has parameters, and takes tensors"
        raise InvalidWorkload(said, where=where, remedy="define `model` and `inputs`")
    if own.module.training != own.trains:
        own.module.train(own.trains)
    entry = ScriptEntry(
        module=type(own.module).__name__,
        calls=own.calls,
        seconds=seconds,
        share=min(1.0, own.seconds / seconds),
        whole=whole,
        with_gradients=any(learns and tally is own for (_key, learns), tally in sight.tallies.items()),
        autocast=own.autocast,
        is_compiled=own.is_compiled,
    )
    return Chosen(own.module, own.samples, entry, tuple(_notes(entry, own, subjects)))


def _check_not_a_training(sight: Sight, where: str) -> None:
    """Raises InvalidWorkload for a script that mostly trains."""
    learning = sum(tally.seconds for (_key, learns), tally in sight.tallies.items() if learns)
    whole = sum(tally.seconds for tally in sight.tallies.values())
    if not sight.learns or learning < whole / 2:
        return
    optimizer, steps = next(iter(sight.steps.most_common(1)), ("", 0))
    seen = f"{steps} steps of {optimizer} were seen" if steps else f"gradients were computed {sight.derived} times"
    remedy = (
        "define `model`, `inputs`, `loss` (a function of the model and a batch) and `optimizer` in it, and its steps "
        "are tuned; or name a module whose calls without gradients are to be tuned, with --module"
    )
    raise InvalidWorkload(
        f"trains ({seen}), and training is not tuned in a script as it is",
        where=where,
        remedy=remedy,
    )


def _named(subjects: Sequence[Tally], name: str, names: Mapping[str, Any], where: str) -> Sequence[Tally]:
    if not name:
        return subjects
    found = [tally for tally in subjects if tally.module is names.get(name) or type(tally.module).__name__ == name]
    if not found:
        known = ", ".join(dict.fromkeys(type(tally.module).__name__ for tally in subjects)) or "none"
        raise InvalidWorkload(
            f"calls no module {name} itself, without gradients where it trains",
            where=where,
            remedy=f"name one that it calls: {known}",
        )
    return found


def _notes(entry: ScriptEntry, own: Tally, subjects: Sequence[Tally]) -> Iterator[str]:
    ended = "to its end" if entry.whole else "and ended"
    times = "time" if entry.calls == 1 else "times"
    yield (
        f"the script was watched for {entry.seconds:.1f} s {ended}: {entry.module} was called {entry.calls:,} {times}, "
        f"which took {entry.share:.0%} of that"
    )
    for other in subjects:
        share = other.seconds / entry.seconds
        if other is not own and share >= _WORTH_TELLING:
            kind = type(other.module).__name__
            yield f"{kind}, called {other.calls:,} times ({share:.0%}), is not tuned; --module {kind} does that"
    if entry.autocast:
        yield (
            f"the script calls it under autocast ({entry.autocast}), where `autocompile run` leaves it as it is: take "
            "the autocast away, as the recommendation has its own precision; figures here are beside the model's own"
        )
    if entry.is_compiled:
        yield "the script compiles it itself, and what is told here is beside the model as it is, eager"
    if entry.with_gradients:
        yield (
            "the script calls it with gradients enabled, where `autocompile run` leaves it as it is: put "
            "torch.no_grad() around the calls"
        )
