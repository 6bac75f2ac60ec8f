"""Why a model cannot be exported, and which other candidates the reason concerns."""

import pytest
import torch
from torch import nn
from torch.nn.modules import transformer

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


class Causal(nn.Module):
    """A transformer that makes its mask itself, or is given one."""

    def __init__(self):
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

    def forward(self, x, mask=None):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if mask is None else mask
        return self.layers(x, mask=mask)


@pytest.mark.parametrize("mask", [None, torch.eye(5).bool()], ids=["causal", "other"])
def test_torchs_transformers_with_masks_can_be_exported(mask):
    model, x = Causal().eval(), torch.randn(2, 5, 8)
    asking = transformer._detect_is_causal_mask
    program = exported(model, Plan("aot"), Sample((x,) if mask is None else (x, mask), {})).program
    with torch.no_grad():
        (found,) = program.module()(*((x,) if mask is None else (x, mask)))
        torch.testing.assert_close(found, model(x, mask), rtol=1e-4, atol=1e-5)
    assert transformer._detect_is_causal_mask is asking
