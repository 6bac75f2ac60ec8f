"""The part of a watched script that is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from autocompile.core.workload import ScriptEntry
from autocompile.workload.training.training import Training
from autocompile.workload.watching.loaders import Feeding

if TYPE_CHECKING:  # imports transformers
    from autocompile.workload.generating.generation import Generation


@dataclass(frozen=True)
class Chosen:
    """A module, its calls or the batches that it is trained on, and `notes` for the user.

    `training` is how it is trained, or None if it is only called. `generation` is how it generates text; `module` is
    then its decode step. `feeding` is the DataLoader whose batches it is called with, if there is one.
    """

    module: nn.Module
    inputs: Sequence[Any]
    entry: ScriptEntry
    notes: tuple[str, ...]
    training: Training | None = None
    generation: Generation | None = None
    feeding: Feeding | None = None
