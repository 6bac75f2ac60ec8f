"""Send a user's own measure of output quality to another process."""

from __future__ import annotations

import math
import numbers
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from autocompile.core.errors import InvalidWorkload


def spool_metric(metric: Callable[[Any], float], path: Path) -> None:
    """Write the metric to a file for child processes. Raises InvalidWorkload if it cannot be pickled."""
    try:
        path.write_bytes(cloudpickle.dumps(metric))
    except Exception as fault:
        raise InvalidWorkload(
            f"cannot be sent to another process: {fault}", where="metric", remedy="define it as a plain function"
        ) from fault


def unspool_metric(path: str) -> Callable[[Any], float] | None:
    """Return the metric stored at `path`, with each of its results checked, or None if `path` is ""."""
    if not path:
        return None
    metric = pickle.loads(Path(path).read_bytes())  # noqa: S301  our own file, of this run

    def checked(output: Any) -> float:
        try:
            value: Any = metric(output)
        except Exception as fault:
            raise InvalidWorkload(
                f"raised {type(fault).__name__}: {fault}",
                where="metric",
                remedy="call it on the model's output yourself",
            ) from fault
        number = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
        if isinstance(number, bool) or not isinstance(number, numbers.Real) or not math.isfinite(float(number)):
            raise InvalidWorkload(
                f"returned {value!r}, which is not a finite number",
                where="metric",
                remedy="return a float, where higher is better",
            )
        return float(number)

    return checked
