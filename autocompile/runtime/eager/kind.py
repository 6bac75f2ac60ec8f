"""Eager, as the search, the judge and the packer see it. Does not import torch."""

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
