"""Continue prompts with a small language model. Its weights are random, and so is the text."""

import argparse
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def build(width: int, layers: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    options = parser.parse_args()

    model = build(options.width, options.layers)
    generator = torch.Generator().manual_seed(1)
    began, tokens = time.perf_counter(), 0
    for number in range(options.prompts):
        length = int(torch.randint(8, 40, (1,), generator=generator))
        prompt = torch.randint(3, 4096, (1, length), generator=generator)
        text = model.generate(prompt, max_new_tokens=options.new_tokens, do_sample=False)
        tokens += text.shape[1] - length
        print(f"{number}: {text[0, length : length + 8].tolist()} ...")
    seconds = time.perf_counter() - began
    print(f"{tokens} tokens in {seconds:.1f} s, {tokens / seconds:.0f} tokens a second")


if __name__ == "__main__":
    main()
