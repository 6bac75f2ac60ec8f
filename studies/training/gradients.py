"""Compare the gradients of the first step of a way by hand with float64.

    python studies/training/gradients.py NAME WAY       # prints JSON

Dropout is off: compiled code draws other random numbers. Gradients that float32 itself computes with an error of more
than `CONDITIONED`, such as that of the bias of attention's keys, are roundings only, and are not compared.
"""

import argparse
import copy
import json
import logging
import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from by_hand import WAYS
from torch import nn
from torch.utils import _pytree as pytree
from workloads import KINDS, Workload, device_type, workload

CONDITIONED = 1e-5
# A gradient is lost if its error is at least this share of its size; a gradient of zeros has an error of 1.
LOST = 0.9
Gradients = dict[str, torch.Tensor]


def main() -> None:
    """Compare, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(KINDS))
    parser.add_argument("way", choices=list(WAYS))
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    work = undropped(workload(arguments.name, device_type()))
    print(json.dumps(compared(work, arguments.way)))


def compared(work: Workload, way: str) -> dict[str, Any]:
    """Return the relative error (norm over norm) of the whole gradient and of the worst one, and how many are lost."""
    truth = gradients(in_float64(work), "eager")
    usual = gradients(copy.deepcopy(work), "eager")
    found = gradients(work, way)
    names = [name for name in truth if error(usual, truth, [name]) <= CONDITIONED]
    errors = {name: error(found, truth, [name]) for name in names}
    worst = max(errors, key=lambda name: errors[name])
    return {
        "error": error(found, truth, names),
        "worst": worst,
        "worst_error": errors[worst],
        "lost": sum(one >= LOST for one in errors.values()),
        "compared": len(names),
        "parameters": len(truth),
    }


def gradients(work: Workload, way: str) -> Gradients:
    """Return the gradients that the first step of the way leaves in the parameters, in float64."""
    WAYS[way](work).step(work.batches[0])
    zero = torch.zeros((), dtype=torch.float64)
    found = {name: one.grad for name, one in work.model.named_parameters()}
    return {name: zero if grad is None else grad.cpu().double() for name, grad in found.items()}


def error(found: Gradients, truth: Gradients, names: list[str]) -> float:
    """Return the norm of the error of these gradients together, relative to their norm; infinity if it is NaN."""
    off = sum(float((found[name] - truth[name]).square().sum()) for name in names)
    size = sum(float(truth[name].square().sum()) for name in names)
    relative = math.sqrt(off / size) if size else math.inf
    return relative if math.isfinite(relative) else math.inf


def in_float64(work: Workload) -> Workload:
    """Return a copy of the workload that computes in float64."""
    model = copy.deepcopy(work.model).double()
    return replace(work, model=model, batches=tuple(pytree.tree_map(_doubled, batch) for batch in work.batches))


def _doubled(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def undropped(work: Workload) -> Workload:
    """Switch dropout off in the model."""
    for module in work.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.RNNBase) or isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    return work


if __name__ == "__main__":
    main()
