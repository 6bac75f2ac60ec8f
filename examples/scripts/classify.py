"""Classify measurements with a network, batch by batch, and write one line per measurement into a CSV file.

    python examples/scripts/classify.py --samples 4096 --output classes.csv

A typical script. It does not use autocompile.
"""

import argparse
import csv
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Residual blocks on 64 numbers."""

    def __init__(self, width, depth, classes):
        super().__init__()
        self.into = nn.Linear(64, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        hidden = self.into(x)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.out(hidden)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Net(width=128, depth=4, classes=10).to(device).eval()
    loader = DataLoader(TensorDataset(torch.randn(args.samples, 64)), batch_size=args.batch_size)

    counts = torch.zeros(10, dtype=torch.long)
    with args.output.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["sample", "class", "score"])
        with torch.no_grad():
            for start, (batch,) in enumerate(loader):
                scores = model(batch.to(device)).softmax(dim=-1).cpu()
                best = scores.max(dim=-1)
                for row, (label, score) in enumerate(zip(best.indices.tolist(), best.values.tolist())):
                    writer.writerow([start * args.batch_size + row, label, f"{score:.3f}"])
                counts += torch.bincount(best.indices, minlength=10)
    print("classes:", counts.tolist())


if __name__ == "__main__":
    main()
