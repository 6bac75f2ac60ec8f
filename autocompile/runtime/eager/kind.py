"""Eager, as those who decide see it. No torch."""

from __future__ import annotations

from autocompile.core.plan import EAGER
from autocompile.runtime.kind import Kind


class EagerKind(Kind):
    """Nothing is compiled."""

    name = EAGER
    meaning = "torch's operators, one by one"
    implementation = "autocompile.runtime.eager.runtime"
    trains = True
    draws_as_eager = True


KIND = EagerKind()
