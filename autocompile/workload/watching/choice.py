"""Choose which of the modules that a script calls is tuned, and on which inputs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autocompile.core.errors import InvalidWorkload
from autocompile.core.workload import ScriptEntry
from autocompile.workload.generating.not_tunable import NotTunable
from autocompile.workload.outermost import has_compiled_forward, is_compiled_in_place, uncompiled
from autocompile.workload.own_autocast import own_autocast
from autocompile.workload.watching.chosen import Chosen
from autocompile.workload.watching.learning.lesson import Lesson
from autocompile.workload.watching.learning.training import Taught, Unteachable, taught
from autocompile.workload.watching.sight import Sight
from autocompile.workload.watching.tally import Tally

if TYPE_CHECKING:  # both import transformers
    from autocompile.workload.generating.generation import Generation
    from autocompile.workload.generating.seen import Generated

# With fewer calls than this, the report notes that tuning gains little.
_FEW = 10
# Modules that take less than this share of the script's time are not reported.
_WORTH_TELLING = 0.05
# A training is preferred to other calls if it takes at least this share of the longest use's time.
_WORTH_TUNING = 0.1


_HOW = "define `model`, `inputs`, `loss` (a function of the model and a batch) and `optimizer` in it"


@dataclass(frozen=True)
class Subject:
    """A module in one of its uses: calls that train nothing, training (its `lesson`), or text that it `generated`.

    `with_gradients` tells whether gradients were enabled in those calls, though none were computed.
    """

    tally: Tally
    lesson: Lesson | None = None
    with_gradients: bool = False
    generated: Generated | None = None

    @property
    def seconds(self) -> float:
        """The time of its calls. In training it includes gradients and updates; in generating, prompts."""
        generating = self.generated.seconds + self.generated.prefill_s if self.generated else 0.0
        return self.tally.seconds + (self.lesson.seconds if self.lesson else 0.0) + generating

    @property
    def kind(self) -> str:
        """The name of the module's class."""
        return type(self.tally.module).__name__

    @property
    def told(self) -> str:
        """How often the module was used, in words."""
        if self.generated is not None:
            calls, steps = _times(self.generated.calls), self.generated.steps
            return f"asked to generate {calls}, in {steps:,} decode step{'s' * (steps != 1)}"
        if self.lesson is None:
            return f"called {_times(self.tally.calls)}"
        return f"trained in {_steps(self.lesson)}"


def chosen(sight: Sight, name: str, names: Mapping[str, Any], where: str, *, whole: bool) -> Chosen:
    """Choose the module of that name, in its longest use, or else the module that takes the most time, trainings first.

    `names` are the script's variables. `whole` tells whether the script ran to its end. Raises InvalidWorkload if no
    module was called, if no module has that name, or if the chosen module is trained in a way that cannot be repeated.
    """
    if sight.began is None:
        raise InvalidWorkload(
            "called no torch module in its own process",
            where=where,
            remedy="call the model there (other processes are not watched, nor are classes with a __call__ of their "
            "own), or define `model` and `inputs`",
        )
    seconds = time.perf_counter() - sight.began
    subjects = list(_subjects(sight))
    wanted = by_worth(_named(subjects, name, names, where), named=bool(name))
    _check_gradients(sight, wanted, name, where)
    if not wanted:
        said = "calls no module that has parameters and takes tensors"
        raise InvalidWorkload(said, where=where, remedy="define `model` and `inputs`")
    _check_forward(wanted[0], where)
    own, found = _first_to_tune(wanted, name, where)
    made = None if own.generated is None else _generation(own.generated, own.kind, where)
    entry = ScriptEntry(
        module=own.kind,
        calls=own.lesson.steps if own.lesson else own.generated.steps if own.generated else own.tally.calls,
        seconds=seconds,
        share=min(1.0, own.seconds / seconds),
        whole=whole,
        with_gradients=own.with_gradients,
        autocast=own.tally.autocast,
        is_compiled=own.tally.is_compiled or is_compiled_in_place(own.tally.module),
    )
    notes = tuple(_notes(entry, own, subjects))
    feeding = sight.loaders.feeding(own.tally.module)
    if made is not None:
        return Chosen(made.decoding, made.samples, entry, notes, generation=made)
    if found is not None:
        return Chosen(found.module, found.batches, entry, notes, found.training, feeding=feeding)
    own.tally.module.train(own.tally.trains)
    return Chosen(own.tally.module, own.tally.samples, entry, notes, feeding=feeding)


def by_worth(subjects: Sequence[Subject], *, named: bool) -> list[Subject]:
    """Sort the uses by time, the longest first.

    Unless a module is `named`, trainings come before calls that took longer, because the beginning of a script may
    spend more time on evaluation than the rest.
    """
    most = max((one.seconds for one in subjects), default=0.0)

    def trains(one: Subject) -> bool:
        return not named and one.lesson is not None and one.seconds >= _WORTH_TUNING * most

    return sorted(subjects, key=lambda one: (not trains(one), -one.seconds))


def _check_gradients(sight: Sight, wanted: Sequence[Subject], name: str, where: str) -> None:
    """Raise InvalidWorkload for a script that mostly computes gradients, but does no optimizer step."""
    if name or not sight.lessons.derived or sight.lessons.stepped:
        return
    learning = sum(tally.seconds for (_key, learns), tally in sight.tallies.items() if learns)
    if learning >= max((one.seconds for one in wanted), default=0.0):
        said = f"computes gradients ({_times(sight.lessons.derived)}), but no torch optimizer was seen to use them"
        remedy = f"watch it longer with --watch, because no step may have been completed yet; or {_HOW}"
        if sight.lessons.unseen:
            said += " for a module whose calls were seen before; those of a class with its own __call__ are not seen"
        raise InvalidWorkload(said, where=where, remedy=remedy if sight.ended else _HOW)


def _first_to_tune(wanted: Sequence[Subject], name: str, where: str) -> tuple[Subject, Taught | None]:
    """Return the first use that can be tuned, and its training if it is one.

    If the first use is a training that cannot be repeated, a named module's calls without gradients are tuned instead.
    Otherwise this raises InvalidWorkload.
    """
    own = wanted[0]
    if own.lesson is None:
        return own, None
    try:
        return own, taught(own.lesson, autocast=own.tally.autocast)
    except Unteachable as fault:
        called = next((one for one in wanted if name and one.lesson is None), None)
        if called is not None:
            return called, None
        seen = f"{_steps(own.lesson)} of {type(own.lesson.optimizer).__name__}"
        said = f"trains {own.kind} ({seen}), but this training cannot be repeated: {fault}"
        remedy = f"{_HOW} to tune its steps; or use --module to name a module that it calls without gradients"
        raise InvalidWorkload(said, where=where, remedy=remedy) from fault


def _check_forward(own: Subject, where: str) -> None:
    """Raise InvalidWorkload if the script has replaced a module's forward() by a compiled function."""
    if has_compiled_forward(own.tally.module):
        said = f"replaces the forward() of {own.kind} by a compiled one, which no other process can be sent"
        raise InvalidWorkload(said, where=where, remedy="call the model's own `compile()` instead")


def _subjects(sight: Sight) -> Iterator[Subject]:
    """Yield the uses of modules that could be tuned."""
    lessons = {id(one.module): one for one in sight.lessons.stepped}
    for generated in sight.generations.seen:
        if generated.steps or generated.left:
            tally = Tally(generated.model, trains=generated.model.training, autocast=generated.autocast)
            yield Subject(tally, generated=generated)
    for (key, learns), tally in sight.tallies.items():
        if learns and key in lessons:
            yield Subject(tally, lessons[key])
        elif tally.kept and not (learns and sight.learns):
            yield Subject(tally, with_gradients=learns)


def _generation(generated: Generated, kind: str, where: str) -> Generation:
    """Return its decode step as a workload. Raises InvalidWorkload if that is not possible."""
    from autocompile.workload.generating.generation import generation_of  # noqa: PLC0415  imports transformers

    try:
        return generation_of(generated)
    except NotTunable as fault:
        said = f"generates text with {kind}, whose decode step cannot be tuned: {fault}"
        remedy = "generate token by token, or use --module to name another module that it calls"
        raise InvalidWorkload(said, where=where, remedy=remedy) from fault


def _steps(lesson: Lesson) -> str:
    return f"{lesson.steps:,} {lesson.words.counted(lesson.steps)}"


def _calls(count: int) -> str:
    return f"{count:,} call{'s' * (count != 1)}"


def _times(count: int) -> str:
    return f"{count:,} time{'s' * (count != 1)}"


def _named(subjects: Sequence[Subject], name: str, names: Mapping[str, Any], where: str) -> Sequence[Subject]:
    if not name:
        return subjects
    found = [one for one in subjects if one.tally.module is uncompiled(names.get(name)) or one.kind == name]
    if not found:
        known = ", ".join(dict.fromkeys(one.kind for one in subjects)) or "none"
        raise InvalidWorkload(
            f"calls no module {name} itself, neither to train it nor without gradients",
            where=where,
            remedy=f"name one that it calls: {known}",
        )
    return found


def _notes(entry: ScriptEntry, own: Subject, subjects: Sequence[Subject]) -> Iterator[str]:
    ended = "until it ended" if entry.whole else "and then stopped"
    yield (
        f"the script was watched for {entry.seconds:.1f} s {ended}: {entry.module} was {own.told}, which took "
        f"{entry.share:.0%} of that time"
    )
    if entry.whole and entry.calls < _FEW:
        uses = own.lesson.words.many if own.lesson else "calls"
        yield f"tuning gains little for so few {uses}: use --calls N to give the number that a process makes"
    if own.generated is not None and own.generated.prefill_s:
        yield from _of_generating(own.generated)
    for other in subjects:
        share = other.seconds / entry.seconds
        if other.tally.module is not own.tally.module and share >= _WORTH_TELLING:
            yield f"{other.kind}, {other.told} ({share:.0%}), is not tuned; use --module {other.kind} to tune it"
    yield from _of_its_own_ways(entry, own)


def _of_generating(generated: Generated) -> Iterator[str]:
    left = f" and are not tuned: {generated.prompts_left}" if generated.prompts_left else ""
    yield f"prompts took {generated.prefill_share:.0%} of generating{left}"
    for reason, count in generated.left.items():
        yield f"{_calls(count)} of generate {'is' if count == 1 else 'are'} not tuned: {reason}"


def _of_its_own_ways(entry: ScriptEntry, own: Subject) -> Iterator[str]:
    """Yield notes on how the script uses the module besides calling it, and how `autocompile run` treats that."""
    if own.lesson is not None and own.lesson.is_scaled:
        yield "the script scales its loss with a GradScaler, which keeps working; the results here are without it"
    if entry.autocast and own_autocast(own.tally.module):
        yield (
            f"the script has wrapped its forward() in autocast ({entry.autocast}); `autocompile run` replaces it with "
            "the recommendation's precision; the results here are relative to the model's own precision"
        )
    elif entry.autocast:
        leaves = "uses the recommendation's precision instead" if own.lesson else "does not change such calls"
        yield (
            f"the script calls it under autocast ({entry.autocast}), and `autocompile run` {leaves}: remove the "
            "autocast, because the recommendation sets the precision; the results here are relative to the model's own"
        )
    if entry.is_compiled:
        yield "the script compiles it itself; the results here are relative to the eager model"
    if entry.with_gradients:
        yield (
            "the script calls it with gradients enabled, and `autocompile run` does not change such calls: put "
            "torch.no_grad() around them"
        )
