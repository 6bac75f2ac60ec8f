"""The workloads of the study. Weights are random: the time of a call does not depend on them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def gpt() -> nn.Module:
    """Return a small GPT-2: 4 layers of width 256."""
    config = GPT2Config(**TOKENS, vocab_size=8000, n_embd=256, n_layer=4, n_head=4, n_positions=512)
    return GPT2LMHeadModel(config)


def llama() -> nn.Module:
    """Return a small Llama: 8 layers of width 512, grouped-query attention."""
    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    return LlamaForCausalLM(LlamaConfig(**TOKENS, **sizes, **heads, vocab_size=8000, max_position_embeddings=512))


@dataclass(frozen=True)
class Workload:
    """A model, the tokens of each prompt, and the new tokens of each text."""

    model: Callable[[], nn.Module]
    prompt: int
    new: int

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments of `generate` besides the prompt."""
        return {"max_new_tokens": self.new, "min_new_tokens": self.new, "do_sample": False}

    def prompts(self, count: int) -> list[torch.Tensor]:
        """Return `count` prompts, the same each time."""
        generator = torch.Generator().manual_seed(1)
        return [torch.randint(3, 8000, (1, self.prompt), generator=generator) for _ in range(count)]


WORKLOADS = {
    "gpt": Workload(gpt, prompt=32, new=64),
    "llama": Workload(llama, prompt=32, new=64),
    "llama-long": Workload(llama, prompt=384, new=24),
}


def made(name: str) -> nn.Module:
    """Return the model, with the same weights each time."""
    torch.manual_seed(0)
    return WORKLOADS[name].model().eval()
