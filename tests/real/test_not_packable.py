"""Why a model cannot be exported, and which other candidates the reason concerns."""

import pytest
import torch

from autocompile.core.plan import Plan
from autocompile.runtime.base import NotPackable
from autocompile.runtime.export import exported
from autocompile.workload.samples import Sample

SAMPLE = Sample((torch.randn(3, 2),), {})


def branching(x):
    return x + 1 if x.sum() > 0 else x - 1


def converting(x):
    return x + float(x.detach().numpy().sum())


def raising(_x):
    raise RuntimeError("not now")


@pytest.mark.parametrize(
    ("model", "said", "cause"),
    [
        (branching, "control flow depends on the values of a tensor", "no program"),
        (converting, "converted to NumPy", "no program"),
        (raising, "RuntimeError: not now", "export"),
    ],
)
def test_a_reason_that_no_runtime_can_change_concerns_all_programs(model, said, cause):
    with pytest.raises(NotPackable, match=said) as raised:
        exported(model, Plan("aot"), SAMPLE)
    assert raised.value.cause == cause
