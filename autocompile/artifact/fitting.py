"""Which of the modules that a script calls is the one that was tuned, found out once for each."""

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
from autocompile.workload.own_autocast import unwrapped


class HasService(Protocol):
    """What tells what came of it."""

    def service(self) -> Service: ...


Applied = TypeVar("Applied", bound=HasService)


@dataclass(frozen=True)
class _Known(Generic[Applied]):
    """What was applied to a module, and whether it was in training mode when that was found out."""

    module: ref[nn.Module]
    applied: Applied | None
    trains: bool


class Fitting(Generic[Applied]):
    """By module, what the recommendation was applied to by `apply`; None where another model was tuned.

    `applied` are all of them in order; `others`: how modules that were called differ from the one that was tuned, by
    their class. `as_tuned`: what of a module was tuned, by default the module itself.
    """

    def __init__(
        self,
        manifest: Manifest,
        apply: Callable[[nn.Module], Applied],
        *,
        as_tuned: Callable[[nn.Module], nn.Module] = lambda module: module,
    ) -> None:
        self._manifest, self._apply, self._as_tuned = manifest, apply, as_tuned
        # By identity, as a module may say what it is equal to.
        self._known: dict[int, _Known[Applied]] = {}
        self._lock = RLock()
        self.applied: list[Applied] = []
        self.others: dict[str, str] = {}

    def __call__(self, module: nn.Module) -> Applied | None:
        """What was applied to it."""
        known = self._known.get(id(module))
        is_known = known is not None and known.module() is module
        # Another model may be the one that was tuned when it is in the other mode.
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
        applied = self._apply(module)
        self.applied.append(applied)
        return applied


class AppliedScript(Generic[Applied]):
    """A script with a recommendation applied, to those of its modules that fit."""

    _fitting: Fitting[Applied]

    def services(self) -> list[Service]:
        """What came of it, for each module that was the one that was tuned."""
        return [one.service() for one in self._fitting.applied]

    @property
    def others(self) -> dict[str, str]:
        """How modules that the script used differ from the one that was tuned, by their class."""
        return dict(self._fitting.others)
