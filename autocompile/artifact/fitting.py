"""Finds out, once per module, whether a module that a script calls is the one that was tuned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

from torch import nn

from autocompile.artifact.mismatch import mismatches
from autocompile.core.manifest import Manifest
from autocompile.core.service import Service
from autocompile.workload.outermost import undo_compiling_in_place
from autocompile.workload.own_autocast import unwrapped


class HasService(Protocol):
    """An object that reports how it served."""

    def service(self) -> Service: ...


Applied = TypeVar("Applied", bound=HasService)


@dataclass(frozen=True)
class _Known(Generic[Applied]):
    """What was applied to a module, and whether the module was in training mode then."""

    module: ref[nn.Module]
    applied: Applied | None
    trains: bool


class Fitting(Generic[Applied]):
    """Applies the recommendation to those modules that are the tuned one.

    `apply`: creates the applied object of such a module. `as_tuned`: returns the part of a module that was tuned, by
    default the module itself. If the script has compiled a module by its method `compile`, that is undone, because the
    recommendation takes its place. `applied` has all applied objects, in order; `others` says how other modules differ,
    by their class.
    """

    def __init__(
        self,
        manifest: Manifest,
        apply: Callable[[nn.Module], Applied],
        *,
        as_tuned: Callable[[nn.Module], nn.Module] = lambda module: module,
    ) -> None:
        self._manifest, self._apply, self._as_tuned = manifest, apply, as_tuned
        # By identity, because a module may define its own equality.
        self._known: dict[int, _Known[Applied]] = {}
        self._lock = RLock()
        self.applied: list[Applied] = []
        self.others: dict[str, str] = {}

    def __call__(self, module: nn.Module) -> Applied | None:
        """Return what was applied to this module, or None if it is not the one that was tuned."""
        known = self._known.get(id(module))
        is_known = known is not None and known.module() is module
        # A module that does not fit may fit once it is in the other mode.
        if known is not None and is_known and (known.applied is not None or known.trains == module.training):
            return known.applied
        with self._lock:
            applied = self._looked_at(module)
            self._known[id(module)] = _Known(ref(module, self._forgetting(id(module))), applied, module.training)
        return applied

    def _forgetting(self, key: int) -> Callable[[Any], None]:
        def forget(_gone: Any) -> None:
            self._known.pop(key, None)

        return forget

    def _looked_at(self, module: nn.Module) -> Applied | None:
        with unwrapped(module):
            found = mismatches(self._manifest, self._as_tuned(module))
        differs = next((one.message for one in found if one.is_of_the_model), "")
        if differs:
            self.others[type(module).__name__] = differs
            return None
        self.others.pop(type(module).__name__, None)
        undo_compiling_in_place(module)
        applied = self._apply(module)
        self.applied.append(applied)
        return applied


class AppliedScript(Generic[Applied]):
    """A script with a recommendation applied to those of its modules that fit."""

    _fitting: Fitting[Applied]

    def services(self) -> list[Service]:
        """Return the statistics of each module that fits."""
        return [one.service() for one in self._fitting.applied]

    @property
    def others(self) -> dict[str, str]:
        """How the script's other modules differ from the one that was tuned, by their class."""
        return dict(self._fitting.others)
