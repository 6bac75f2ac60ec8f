"""The first unit of work: a model is called, without gradients."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import nn

from autocompile.workload.samples import Sample
from autocompile.workload.step import Step


class Call(Step):
    """A call of `model`, a module or a function, without gradients; itself called like the model.

    `module` is the module that runs beneath, where that is not the model itself.
    """

    def __init__(
        self, model: Any, *, module: nn.Module | None = None, threads: int = 0, device_type: str = "cpu"
    ) -> None:
        self.model = model
        self.module = model if module is None and isinstance(model, nn.Module) else module
        self.threads, self.device_type = threads, device_type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output."""
        with torch.no_grad():
            return self.model(*args, **kwargs)

    def work(self, sample: Sample) -> Any:
        return self(*sample.args, **sample.kwargs)

    def twin(self) -> Self:
        """With buffers of its own, if there are any; asked of what is not compiled, as the baseline is."""
        if not any(True for _ in self.state.named()):
            return self
        other = copy.copy(self)
        copies: dict[int, Any] = {id(parameter): parameter for parameter in self.state.fixed()}
        for parameter in self.module.parameters() if self.module is not None else ():
            if id(parameter) not in copies:  # torch's own copy of a parameter is never in a buffer's memory
                data = copy.deepcopy(parameter.data, copies)
                copies[id(parameter)] = type(parameter)(data, parameter.requires_grad)
        other.model, other.module = copy.deepcopy((self.model, self.module), copies)
        return other

    def in_float64(self) -> Call:
        """Of a module; a function computes in the precision of its arguments."""
        model = copy.deepcopy(self.model).double() if isinstance(self.model, nn.Module) else self.model
        return Call(model, device_type=self.device_type)
