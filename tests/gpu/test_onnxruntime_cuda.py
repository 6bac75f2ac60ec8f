"""ONNX Runtime on a GPU: `pytest -m gpu`, with onnxruntime-gpu installed."""

import pytest
import torch
from torch import nn

from autocompile.core.plan import Plan
from autocompile.runtime.building import ahead
from autocompile.runtime.files import Files
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.onnxruntime.kind import KIND
from autocompile.runtime.onnxruntime.library import library
from autocompile.workload.samples import Sample

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def provider():
    for name in ("onnx", "onnxscript"):
        pytest.importorskip(name)
    try:
        if "CUDAExecutionProvider" in library().get_available_providers():
            return
    except ImportError:
        pass
    pytest.skip("onnxruntime-gpu is not installed")


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
def test_a_program_runs_where_its_tensors_are(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).cuda().eval()
    x = torch.randn(2, 3, 8, 8, device="cuda")
    runtime = ahead(KIND.name)
    program = runtime.compile_ahead(model, Plan(runtime=KIND.name), Sample((x,), {}), (), tmp_path, "program0")
    run = runtime.load(program, Files(tmp_path), model, Watch(model))
    first = run([x])
    assert first.device == x.device
    kept = first.clone()
    for _ in range(20):
        run([torch.randn_like(x)])
    assert torch.equal(first, kept), "an output is the caller's own"
    torch.testing.assert_close(first, model(x), rtol=1e-2, atol=1e-2)
