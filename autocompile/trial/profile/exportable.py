"""Check whether a model can be exported, and if not, where and why."""

from __future__ import annotations

from typing import Any

from autocompile.core.plan import Plan
from autocompile.runtime.base import NotPackable
from autocompile.runtime.export import exported
from autocompile.trial.deadline import TookTooLong, within
from autocompile.workload.capture.script import describe_fault
from autocompile.workload.samples import Sample, clone


def export_failure(model: Any, sample: Sample, limit_s: float) -> str | None:
    """Return why `torch.export` fails for the model with this sample's sizes: "" if it succeeds, None after `limit_s`.

    The model is exported in the same way as for packing: over its tensors alone, with nothing compiled.
    """
    own = clone(sample)
    try:
        with within(limit_s):
            exported(model, Plan(), own)
    except TookTooLong:
        return None
    except NotPackable as fault:
        return str(fault)
    except Exception as fault:  # the exporter raises dozens of types
        return describe_fault(fault)
    return ""
