"""The models of the study, with random weights: the time of a decode step does not depend on the weights."""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
PROMPT, NEW = 32, 64


def gpt() -> nn.Module:
    """Return a small GPT-2: 4 layers of width 256."""
    config = GPT2Config(**TOKENS, vocab_size=8000, n_embd=256, n_layer=4, n_head=4, n_positions=512)
    return GPT2LMHeadModel(config)


def llama() -> nn.Module:
    """Return a small Llama: 8 layers of width 512, grouped-query attention."""
    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    return LlamaForCausalLM(LlamaConfig(**TOKENS, **sizes, **heads, vocab_size=8000, max_position_embeddings=512))


MODELS = {"gpt": gpt, "llama": llama}


def made(name: str) -> nn.Module:
    """Return the model, with the same weights each time."""
    torch.manual_seed(0)
    return MODELS[name]().eval()


def prompts(count: int) -> list[torch.Tensor]:
    """Return `count` prompts of shape [1, 32], the same each time."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(3, 8000, (1, PROMPT), generator=generator) for _ in range(count)]


ASKED = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
