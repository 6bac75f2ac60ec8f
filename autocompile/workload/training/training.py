"""Describe how a user trains: the loss of a batch, the optimizer, and the operations between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from autocompile.core.errors import InvalidValue, InvalidWorkload
from autocompile.core.goal import Batch, check_batch
from autocompile.workload.opaque import tensors_in
from autocompile.workload.samples import MAX_SAMPLES, Sample, named_leaves

Loss = Callable[[Any, Any], torch.Tensor]
MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


def own_loss(model: Any, batch: Any) -> torch.Tensor:
    """Return the `.loss` of the model's output on a batch.

    A mapping is passed as keyword arguments, a tuple or a list as positional ones, anything else as the only argument.
    Raises InvalidWorkload if the output has no loss.
    """
    if isinstance(batch, Mapping):
        output = model(**batch)
    elif isinstance(batch, tuple | list):
        output = model(*batch)
    else:
        output = model(batch)
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None:
        raise InvalidWorkload(
            f"the model's output, a {type(output).__name__}, has no loss",
            where="training",
            remedy="give loss=, a function of the model and a batch",
        )
    return loss  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training step, as in the user's own loop.

    `optimizer`: an optimizer, whose class, groups and state are copied and which is never changed; or a function that
    takes a list of all the model's parameters and returns an optimizer. `loss`: a function of the model and a batch
    that returns a scalar tensor that needs a gradient; by default the `.loss` of the model's output. `accumulate`: the
    number of batches in one step; the loss of each is divided by this number. `clip_norm`: the norm to which the
    gradient of all parameters together is clipped, or None. `batch`: how many samples a batch may have: as many as were
    given (`fixed`), the number that takes the least time per sample (`tune`), or one of a sequence of sizes. Another
    batch size changes what is learned, and may require another learning rate: that is for you to judge.

    Raises InvalidValue if `accumulate` is below 1, if `clip_norm` is not above 0, if `batch` is invalid, or if
    `optimizer` or `loss` has the wrong type.
    """

    optimizer: Optimizer | MakeOptimizer
    loss: Loss = own_loss
    accumulate: int = 1
    clip_norm: float | None = None
    batch: Batch = "fixed"

    def __post_init__(self) -> None:
        """Check what can be checked without the model."""
        if not isinstance(self.optimizer, Optimizer) and not callable(self.optimizer):
            raise InvalidValue(
                f"is a {type(self.optimizer).__name__}",
                where="training.optimizer",
                remedy="give a torch.optim.Optimizer, or a function from parameters to one",
            )
        check_batch(self.batch)
        if not callable(self.loss):
            raise InvalidValue(
                f"is a {type(self.loss).__name__}",
                where="training.loss",
                remedy="give a function of the model and a batch",
            )
        if not isinstance(self.accumulate, int) or isinstance(self.accumulate, bool) or self.accumulate < 1:
            raise InvalidValue(
                f"is {self.accumulate!r}", where="training.accumulate", remedy="give a number of batches, 1 or more"
            )
        if self.clip_norm is not None and not (self.clip_norm > 0 and math.isfinite(self.clip_norm)):
            raise InvalidValue(
                f"is {self.clip_norm!r}", where="training.clip_norm", remedy="give a number above 0, or None"
            )

    def samples_of(self, batches: Sequence[Any]) -> tuple[Sample, ...]:
        """Return the batches as samples, one per step.

        A sample's arguments are the batches that the step accumulates over. The last step is filled up with the first
        batches. Raises InvalidWorkload if there is no batch, or if the batches have different structures.
        """
        if not batches:
            raise InvalidWorkload("there is no batch", where="batches", remedy="give at least one")
        for position, batch in enumerate(batches):
            if pytree.tree_structure(batch) != pytree.tree_structure(batches[0]):
                raise InvalidWorkload(
                    f"is {_parts(batch)}, and batches[0] is {_parts(batches[0])}",
                    where=f"batches[{position}]",
                    remedy="give batches of the same structure",
                )
        starts = range(0, len(batches), self.accumulate)
        return tuple(
            Sample(tuple(batches[(start + position) % len(batches)] for position in range(self.accumulate)), {})
            for start in starts
        )


def steps_of(batches: Any, training: Training) -> tuple[Sample, ...]:
    """Return the samples of batches as users give them: a list contains several batches, anything else is one.

    More than 64 batches are thinned evenly. Raises InvalidWorkload as `samples_of` does, and if a batch contains no
    tensor.
    """
    many = [known(batch) for batch in (batches if isinstance(batches, list) else [batches])]
    step = max(1.0, len(many) / MAX_SAMPLES)
    chosen = [many[int(position * step)] for position in range(min(len(many), MAX_SAMPLES))]
    for position, batch in enumerate(chosen):
        if not any(True for _tensor in tensors_in(batch)):
            where = f"batches[{position}]" if len(many) > 1 else "batches"
            raise InvalidWorkload("contains no tensor", where=where, remedy="give what your loss takes")
    return training.samples_of(chosen)


def known(batch: Any) -> Any:
    """Convert a mapping whose tensors pytree does not find, such as a tokenizer's result, to a dict."""
    return dict(batch) if isinstance(batch, Mapping) and pytree.tree_is_leaf(batch) else batch


def _parts(batch: Any) -> str:
    """Return a batch's structure in words."""
    names = [name for name, _leaf in named_leaves(batch)[0] if name]
    return f"a {type(batch).__name__} with {', '.join(names)}" if names else f"a {type(batch).__name__}"
