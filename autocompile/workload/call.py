"""A call of a model without gradients, as a unit of work."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import nn

from autocompile.workload.copying import copied
from autocompile.workload.samples import Sample
from autocompile.workload.step import Step


class Call(Step):
    """A call of `model`, a module or a function, without gradients. It is called like the model.

    `module` is the module that does the computation, if that is not the model itself.
    """

    def __init__(
        self, model: Any, *, module: nn.Module | None = None, threads: int = 0, device_type: str = "cpu"
    ) -> None:
        self.model = model
        self.module = model if module is None and isinstance(model, nn.Module) else module
        self.threads, self.device_type = threads, device_type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's output."""
        with torch.no_grad():
            return self.model(*args, **kwargs)

    def work(self, sample: Sample) -> Any:
        return self(*sample.args, **sample.kwargs)

    def twin(self) -> Self:
        """Return a copy with its own buffers, or this call if there are none.

        Call this only on a model that is not compiled, such as the baseline.
        """
        if not any(True for _ in self.state.named()):
            return self
        other = copy.copy(self)
        copies: dict[int, Any] = {id(parameter): parameter for parameter in self.state.fixed()}
        for parameter in self.module.parameters() if self.module is not None else ():
            if id(parameter) not in copies:  # deepcopy of a parameter loses memory that it shares with a buffer
                data = copy.deepcopy(parameter.data, copies)
                copies[id(parameter)] = type(parameter)(data, parameter.requires_grad)
        other.model, other.module = copied((self.model, self.module), copies)
        return other

    def in_float64(self) -> Call:
        """Return the same call in double precision. A function computes in the precision of its arguments."""
        model = copied(self.model).double() if isinstance(self.model, nn.Module) else self.model
        return Call(model, device_type=self.device_type)
