"""Watch a script's function: group its calls by the objects that they hold, and convert them to a workload."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import cloudpickle
import torch
from torch.utils import _pytree as pytree

from autocompile.core.errors import InvalidWorkload
from autocompile.core.workload import ScriptEntry
from autocompile.workload.function.holding import Held, divided
from autocompile.workload.function.module import FunctionModule, home_of
from autocompile.workload.function.naming import function_name
from autocompile.workload.function.places import Surroundings
from autocompile.workload.function.replacing import Replacement, function_replaced
from autocompile.workload.spans import when_done
from autocompile.workload.watching.chosen import Chosen
from autocompile.workload.watching.loaders import Feeding
from autocompile.workload.watching.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

_INSTEAD = "give a function that only computes, or use --module to tune a module that it calls"
_ON_CALLS = "--function"


class Looks(Protocol):
    """Decides when enough calls were seen, and keeps track of gradients."""

    lessons: Any
    loaders: Any

    def looks(self) -> None: ...


@dataclass
class _Use:
    """Calls that hold the same objects. `learns` tells whether an output had a gradient."""

    function: Any
    held: Held
    tally: Tally
    learns: bool = False


class WatchedFunction:
    """All calls of one function. `fault` tells what it does besides computing, or is "".

    `unseen` names something that it uses whose changes would not be detected, or is "".
    """

    def __init__(self, name: str, sight: Looks) -> None:
        self.name, self._sight = function_name(name), sight
        self.uses: dict[Any, _Use] = {}
        self.is_inside = False
        self.calls = 0
        self.fault = self.unseen = ""
        self.replaces = Replacement(self.name, self._called)

    def feeding(self) -> Feeding | None:
        """Return the DataLoader whose batches it was called with."""
        found: Feeding | None = self._sight.loaders.feeding(self)
        return found

    @contextmanager
    def open(self) -> Iterator[None]:
        """Watch the calls that are made within the context."""
        with function_replaced(self.replaces):
            yield

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._sight.looks()
        self._sight.loaders.called(self)
        self.calls += 1
        held, others, named = divided(function, args, kwargs)
        use = self.uses.setdefault(held.key, _Use(function, held, Tally(function)))
        use.tally.keep(others, named)
        before = None if self.fault or self.calls > 3 else self._surroundings(use)
        stepped = self._sight.lessons.derived
        began = when_done()
        self.is_inside = True
        try:
            output = function(*args, **kwargs)
        finally:
            self.is_inside = False
            use.tally.seconds += when_done() - began
        use.learns = use.learns or any(_has_gradient(leaf) for leaf in pytree.tree_leaves(output))
        if self._sight.lessons.derived > stepped:
            self.fault = "computes gradients: use --module to name the module that it trains"
        if before is not None:
            self._compare(before)
        return output

    def _surroundings(self, use: _Use) -> Surroundings:
        around = Surroundings(use.held.given(use.function))
        use.tally.autocast = next((name for name in map(_autocast, ("cpu", "cuda")) if name), "")
        self.fault, self.unseen = around.act, self.unseen or around.unseen
        return around

    def _compare(self, around: Surroundings) -> None:
        changed = around.moved()
        if changed and not self.fault:
            self.fault = f"changes {changed}, which is defined outside of it"


def _has_gradient(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _autocast(kind: str) -> str:
    on = torch.is_autocast_enabled(kind)
    return str(torch.get_autocast_dtype(kind)).removeprefix("torch.") if on else ""


def chosen_function(watched: WatchedFunction, began: float | None, where: str, *, whole: bool) -> Chosen:
    """Return the function's calls with the objects that took most of its time.

    Raises InvalidWorkload if there is no such function, if it was never called, if it gets no tensors, or if it does
    something besides computing.
    """
    name, replaces = watched.name, watched.replaces
    if replaces.problem:
        raise InvalidWorkload(replaces.problem, where=where, remedy="use --function to name one as pkg.mod:name")
    if not watched.uses or began is None:
        said = f"never calls {name} in a way that is seen" if whole else f"did not call {name} while it was watched"
        remedy = "name a function that it calls" if whole else "watch it longer, for example with --watch 5m"
        raise InvalidWorkload(said, where=where, remedy=remedy)
    uses = sorted(watched.uses.values(), key=lambda use: (not use.tally.kept, -use.tally.seconds))
    own = uses[0]
    if not own.tally.kept:
        said = f"calls {name} without any tensor among its arguments, but a workload needs one"
        raise InvalidWorkload(said, where=where, remedy="use --function to name a function that is given tensors")
    if watched.fault:
        said = f"{name} does more than compute, and a compiled program would not do that: {watched.fault}"
        raise InvalidWorkload(said, where=where, remedy=_INSTEAD)
    if watched.unseen:
        said = f"{name} uses {watched.unseen}, whose later changes would not be detected"
        remedy = "let it use only plain values, tensors and modules; or use --module to name a module that it calls"
        raise InvalidWorkload(said, where=where, remedy=remedy)
    return _chosen(watched, own, uses, time.perf_counter() - began, whole=whole)


def _chosen(watched: WatchedFunction, own: _Use, uses: list[_Use], seconds: float, *, whole: bool) -> Chosen:
    home = home_of(own.function)
    if home is not None:  # a child process gets its globals as the script has set them, not as importing it leaves them
        cloudpickle.register_pickle_by_value(home)
    module = FunctionModule(str(watched.name), own.function, own.held)
    entry = ScriptEntry(
        module=str(watched.name),
        calls=own.tally.calls,
        seconds=seconds,
        share=min(1.0, own.tally.seconds / seconds),
        whole=whole,
        with_gradients=own.learns,
        autocast=own.tally.autocast,
        function=str(watched.name),
    )
    notes = tuple(_notes(entry, module, uses))
    return Chosen(module, own.tally.samples, entry, notes, feeding=watched.feeding())


def _notes(entry: ScriptEntry, module: FunctionModule, uses: list[_Use]) -> Iterator[str]:
    ended = "until it ended" if entry.whole else "and then stopped"
    times = f"{entry.calls:,} time{'s' * (entry.calls != 1)}"
    kinds = ", ".join(dict.fromkeys(type(one).__name__ for one in module.children())) or "no module"
    yield (
        f"the script was watched for {entry.seconds:.1f} s {ended}: {entry.function}, which calls {kinds}, was called "
        f"{times}, which took {entry.share:.0%} of that time"
    )
    if len(uses) > 1:
        yield f"it is called with {len(uses)} different models or objects; the one that took the most time is tuned"
    if entry.autocast:
        yield (
            f"the script calls it under autocast ({entry.autocast}), and `autocompile run` does not change such calls: "
            "remove the autocast, because the recommendation sets the precision"
        )
    if entry.with_gradients:
        yield (
            "what it returns has gradients, and `autocompile run` does not change such calls: put torch.no_grad() "
            "around the calls or into the function"
        )
