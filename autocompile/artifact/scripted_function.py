"""Applies a recommendation to a function of an unchanged script: the artifact serves its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any
from weakref import ref

import torch
from torch.utils import _pytree as pytree

from autocompile.artifact.integrity import open_artifact
from autocompile.artifact.mismatch import mismatches
from autocompile.artifact.options import check_served
from autocompile.artifact.scripted import AppliedModule, under_autocast
from autocompile.core.service import Service
from autocompile.workload.function.holding import Held, divided
from autocompile.workload.function.module import FunctionModule
from autocompile.workload.function.naming import FunctionName
from autocompile.workload.function.places import Surroundings
from autocompile.workload.function.replacing import Replacement, function_replaced

_LEARNS = "gradients were enabled, and its output had a gradient; put torch.no_grad() around the calls"
_UNFROZEN = "a parameter that did not require gradients now does"
_GIVEN_GRADIENTS = "an argument requires a gradient"
# An artifact is loaded for each set. The limit is for scripts that create new objects for each call.
_MOST_SETS = 8
_TOO_MANY = f"it is called with more than {_MOST_SETS} sets of objects; only the first {_MOST_SETS} are served"
_NO_LONGER_KNOWN = "it was given an object that cannot be recognized later"


class ServedFunction:
    """Serves the calls of a script's function, if the function and the objects that it uses are the tuned ones.

    A call is not served if autocast is enabled, if an argument requires a gradient, or if gradients are enabled, unless
    the function `takes_gradients` (its outputs never had one). Nor is it served after a change of something that the
    function uses and that is a constant in the compiled program, such as another model under the same name.
    Raises InvalidRecommendation and InvalidArtifact as `load` does.
    """

    def __init__(self, directory: Path, name: FunctionName, *, takes_gradients: bool) -> None:
        self._manifest = open_artifact(directory, None).manifest
        check_served(self._manifest)
        self._directory, self._takes_gradients = directory, takes_gradients
        self.replaces = Replacement(name, self._called)
        self._known: dict[Any, _Known] = {}
        self._applied: list[_Known] = []
        self._lock = RLock()
        self._others: dict[str, str] = {}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Serve calls within the context."""
        with function_replaced(self.replaces):
            yield

    def services(self) -> list[Service]:
        """Return the statistics for each set of objects that the function was called with."""
        return [known.applied.service() for known in self._applied if known.applied]

    @property
    def others(self) -> dict[str, str]:
        """Why nothing was served: the function does not exist, or is not the one that was tuned."""
        name = str(self.replaces.name)
        return {name: self.replaces.problem} if self.replaces.problem else dict(self._others)

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held, others, named = divided(function, args, kwargs)
        known = self._known.get(held.key)
        if known is None or not known.is_of(held) or known.is_other_now():
            known = self._looked_at(function, held)
        applied = known.applied
        if applied is None:
            return function(*args, **kwargs)
        reason = self._reason_against(known, others, named) or known.changed()
        if reason:
            applied.left[reason] += 1
            return function(*args, **kwargs)
        return applied(others, named)

    def _looked_at(self, function: Callable[..., Any], held: Held) -> _Known:
        """Find out whether the function, with these objects, is the tuned one; repeated as long as it is not."""
        with self._lock:
            name = str(self.replaces.name)
            module = FunctionModule(name, function, held)
            known = self._known[held.key] = _Known(module, held)
            differs = next((one.message for one in mismatches(self._manifest, module) if one.is_of_the_model), "")
            if differs or not known.is_lasting:
                self._others[name] = differs or _NO_LONGER_KNOWN
                return known
            self._others.pop(name, None)
            if len(self._applied) >= _MOST_SETS:
                self._others[name] = _TOO_MANY
                return known
            known.applied = AppliedModule(self._directory, module, name)
            self._applied.append(known)
            return known

    def _reason_against(self, known: _Known, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if torch.is_grad_enabled():
            if not self._takes_gradients:
                return _LEARNS
            if known.learns_more_now():
                return _UNFROZEN
            leaves = pytree.tree_leaves((args, kwargs))
            if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
                return _GIVEN_GRADIENTS
        return under_autocast(self._manifest.device_type)


class _Known:
    """The function with its objects, and what was applied to it, if it is the one that was tuned."""

    def __init__(self, module: FunctionModule, held: Held) -> None:
        self.applied: AppliedModule | None = None
        self._surroundings = Surroundings(module.function)
        self._modes = self._modes_now()
        self._frozen = [one for one in module.parameters() if not one.requires_grad]
        try:
            self._held = [ref(one) for one in held.objects]
            self.is_lasting = True
        except TypeError:
            self._held, self.is_lasting = [], False

    def is_of(self, held: Held) -> bool:
        """Return whether these are the same objects, and not new ones at the same addresses."""
        return all(one() is now for one, now in zip(self._held, held.objects, strict=True))

    def is_other_now(self) -> bool:
        """Return whether a function that was not the tuned one may be it now."""
        return self.applied is None and (self._modes != self._modes_now() or bool(self.changed()))

    def learns_more_now(self) -> bool:
        """Return whether a parameter that was frozen no longer is."""
        return any(one.requires_grad for one in self._frozen)

    def _modes_now(self) -> list[bool]:
        return [module.training for module in self._surroundings.modules.values()]

    def changed(self) -> str:
        """Return what has changed among the things that the function uses, in words, or ""."""
        moved = self._surroundings.moved()
        return f"{moved}, which it uses, was changed" if moved else ""
