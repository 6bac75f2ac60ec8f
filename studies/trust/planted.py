"""Planted faults: check that wrong candidates are caught and that correct ones pass.

    python studies/trust/planted.py

Faults are planted into the outputs of the models of the examples and of this study. The correct candidates are the same
models compiled, in reduced precision, and in another memory format. Rows are appended to results/. It takes about 3
minutes on 2 cores.
"""

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from aa import read_rows, results_of
from msgspec.structs import replace
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.core.job import Acceptance
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.runtime.building import build
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import make_reference
from autocompile.workload.call import Call
from autocompile.workload.samples import as_samples

sys.path.append(str(Path(__file__).parents[2] / "examples"))
Change = Callable[[torch.Tensor], torch.Tensor]


def on_first(output: Any, change: Change) -> Any:
    """Return the output with its first tensor changed."""
    leaves, spec = pytree.tree_flatten(output)
    leaves[0] = change(leaves[0])
    return pytree.tree_unflatten(leaves, spec)


def one_element(x: torch.Tensor) -> torch.Tensor:
    """Change the largest element by 1%."""
    flat = x.clone().flatten()
    flat[flat.abs().argmax()] *= 1.01
    return flat.view_as(x)


def one_nan(x: torch.Tensor) -> torch.Tensor:
    """Set one element to NaN."""
    flat = x.clone().flatten()
    flat[flat.numel() // 2] = torch.nan
    return flat.view_as(x)


FAULTS: dict[str, Change] = {
    "one element off by 1%": one_element,
    "two rows swapped": lambda x: torch.cat([x[1:2], x[:1], x[2:]]),
    "NaN in one lane": one_nan,
    "another dtype": lambda x: x.double(),
}


class Changed(Call):
    """A call whose first output is changed."""

    def __init__(self, model: Any, change: Change) -> None:
        super().__init__(model)
        self._change = change

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return on_first(super().__call__(*args, **kwargs), self._change)


class Stale(Call):
    """A call that returns the output of the previous call."""

    _previous: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        now = super().__call__(*args, **kwargs)
        stale, self._previous = self._previous, now
        return now if stale is None else stale


class Writes(Call):
    """A call that changes a buffer, although the model does not."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = super().__call__(*args, **kwargs)
        next(iter(self.model.buffers())).add_(1)
        return output


RIGHT = {
    "inductor": compiled(),
    "inductor freezing": compiled(options={"freezing": True}),
    "eager bf16": Plan(autocast="bfloat16"),
    "inductor bf16": replace(compiled(), autocast="bfloat16"),
    "eager channels_last": Plan(memory_format="channels_last"),
}


def main() -> None:
    """Check each fault and each correct candidate on each model."""
    import embedding
    import stencil
    from workloads import workloads

    cases = {
        "embedding": (embedding.model, embedding.inputs),
        "stencil": (stencil.model, stencil.inputs),
        **workloads(),
    }
    path = results_of()
    kept = [row for row in read_rows(path) if row["kind"] != "planted"]
    rows = []
    for name, (model, inputs) in cases.items():
        reference = make_reference(Call(model), as_samples(inputs), variants=2, seed=0)
        exact = Acceptance(published_tolerance(""))
        wrong: dict[str, Any] = {fault: Changed(model, change) for fault, change in FAULTS.items()}
        wrong["the previous call's output"] = Stale(model)
        if isinstance(model, nn.Module) and any(True for _ in model.buffers()):
            wrong["a buffer written into"] = Writes(copy.deepcopy(model))
        for fault, call in wrong.items():
            found = compare(call, reference, exact)
            rows.append({"kind": "planted", "model": name, "candidate": fault, "wrong": True, "said": found.fault})
            print(rows[-1], flush=True)
        for label, plan in RIGHT.items():
            torch._dynamo.reset()  # noqa: SLF001
            found = compare(build(Call(model), plan), reference, Acceptance(published_tolerance(plan.precision)))
            rows.append({"kind": "planted", "model": name, "candidate": label, "wrong": False, "said": found.fault})
            print(rows[-1], flush=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in (*kept, *rows)))


if __name__ == "__main__":
    with torch.no_grad():
        main()
