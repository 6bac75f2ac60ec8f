"""Train a transformer to continue sequences, with gradient accumulation, gradient clipping and a schedule.

    python examples/scripts/sequences.py --steps 200 --accumulate 2

A typical script: a training loop without a framework, on the GPU if there is one. It does not use autocompile.
"""

import argparse
import math

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, vocabulary, width, layers, length):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, mask):
        hidden = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def batch(generator, size, length, vocabulary):
    """Return sequences in which each token is the sum of the two before it, modulo `vocabulary`."""
    tokens = torch.randint(vocabulary, (size, length + 1), generator=generator)
    for position in range(2, length + 1):
        tokens[:, position] = (tokens[:, position - 1] + tokens[:, position - 2]) % vocabulary
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Model(32, args.width, args.layers, args.length).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 20, 0.5 + 0.5 * math.cos(math.pi * step / args.steps))
    )
    mask = nn.Transformer.generate_square_subsequent_mask(args.length, device=args.device)
    criterion = nn.CrossEntropyLoss()

    model.train()
    for step in range(args.steps):
        total = 0.0
        for _ in range(args.accumulate):
            tokens = batch(generator, args.batch_size, args.length, 32).to(args.device)
            logits = model(tokens[:, :-1], mask)
            loss = criterion(logits.flatten(0, 1), tokens[:, 1:].flatten()) / args.accumulate
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {total:.4f}, learning rate {schedule.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
