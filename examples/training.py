"""A small language model, trained on the source code of this file. Nothing is downloaded.

autocompile tune examples/training.py --budget 3m --strategy quick --output rec-training/
python examples/training.py rec-training/    # trains as recommended; without a directory, it trains eager
"""

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

CHARACTERS, LENGTH, BATCH, STEPS = 256, 64, 8, 100


class LanguageModel(nn.Module):
    """Predicts the next character: integers of shape (batch, length) to logits of shape (batch, length, 256)."""

    def __init__(self, width: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(CHARACTERS, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.1)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.logits = nn.Linear(width, CHARACTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character at each position."""
        hidden = self.characters(text) + self.positions.weight
        return self.logits(self.layers(hidden, mask=self.mask, is_causal=True))


def loss(run, batch: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of a batch of integers, (batch, length + 1)."""
    logits = run(batch[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def batches(count: int, seed: int = 0) -> list[torch.Tensor]:
    """Return `count` batches of pieces of this file, taken at random places."""
    text = torch.tensor(list(Path(__file__).read_bytes()))
    starts = torch.randint(len(text) - LENGTH, (count, BATCH), generator=torch.Generator().manual_seed(seed))
    return [torch.stack([text[start : start + LENGTH + 1] for start in row]) for row in starts]


torch.manual_seed(0)
model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
inputs = batches(4)


def train(step) -> None:
    """Train for `STEPS` steps, and print the losses and the times."""
    marks, losses = [time.perf_counter()], []
    for batch in batches(STEPS, seed=1):
        losses.append(float(step(batch)))
        marks.append(time.perf_counter())
    start_s, rest_s = marks[1] - marks[0], marks[-1] - marks[1]
    print(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} after {STEPS} steps")
    print(f"first step {start_s:.2f} s, then {rest_s / (STEPS - 1) * 1e3:.1f} ms a step")


def eager(batch: torch.Tensor) -> torch.Tensor:
    """Do a training step as it is usually written, without autocompile."""
    optimizer.zero_grad()
    value = loss(model, batch)
    value.backward()
    optimizer.step()
    return value.detach()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        train(eager)
    else:
        import autocompile

        prepared = autocompile.prepare(sys.argv[1], model, optimizer, loss=loss)
        train(prepared)
        print(prepared.status)
