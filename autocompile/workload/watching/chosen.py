"""What of a watched script is tuned."""

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
    """A module, its calls or the batches that it is trained on, and what was seen of them; `notes` are worth telling.

    `training`: how it is trained, None where it is called. `generation`: how it generates text, where `module` is its
    decode step. `feeding`: the DataLoader whose batches it is called with, if there is one.
    """

    module: nn.Module
    inputs: Sequence[Any]
    entry: ScriptEntry
    notes: tuple[str, ...]
    training: Training | None = None
    generation: Generation | None = None
    feeding: Feeding | None = None
