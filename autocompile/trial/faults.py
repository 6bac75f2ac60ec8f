"""Convert an exception in a child process to a Failure of the right kind."""

from __future__ import annotations

import contextlib
import re

import torch

from autocompile.core.errors import UsageError
from autocompile.core.outcome import Failure, FailureKind
from autocompile.runtime.base import Fault, NotLoadable, NotPackable
from autocompile.runtime.building import LibraryMissing, usable
from autocompile.trial.phases import Phases
from autocompile.workload.capture.script import describe_fault

_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|bad_alloc|Cannot allocate memory", re.IGNORECASE)


class ServedOtherwise(Exception):
    """The artifact did not serve the calls in the way it was packed for. The message gives the reason."""


def failure_of(fault: BaseException, phases: Phases) -> Failure:
    """Return the Failure for `fault`, with message and kind. Never raises, even if the exception's `__str__` does."""
    known = _known(fault)
    try:
        message = str(fault) if isinstance(fault, UsageError | LibraryMissing) else describe_fault(known.origin)
    except Exception:
        message = f"{type(fault).__name__}, whose own message cannot be printed"
    kind = _general_kind(fault, message) or known.kind
    if kind == known.kind and known.message:
        message = known.message
    return Failure(stage=phases.current, kind=kind, message=message[:2000], cause=known.cause)


def is_recompile(fault: BaseException) -> bool:
    """Whether `fault` is the exception that a runtime raises when recompiling is forbidden."""
    return any(own.is_recompile(fault) for own in usable().values())


def _known(fault: BaseException) -> Fault:
    """Return the description of the first runtime that recognizes the exception."""
    for own in usable().values():
        with contextlib.suppress(Exception):  # the exception's own `__str__` may raise
            known = own.known_fault(fault)
            if known is not None:
                return known
    return Fault(fault, "error", fault.cause if isinstance(fault, NotPackable | NotLoadable) else "")


def _general_kind(fault: BaseException, message: str) -> FailureKind | None:
    """Return the kind of a failure that does not depend on a runtime, or None."""
    if isinstance(fault, UsageError):
        return "invalid"
    if isinstance(fault, ServedOtherwise | NotPackable | LibraryMissing):
        return "unsupported"
    named = f"{type(fault).__name__}: {message}"
    is_of_memory = isinstance(fault, MemoryError | torch.cuda.OutOfMemoryError) or _NO_MEMORY.search(named)
    return "out_of_memory" if is_of_memory else None
