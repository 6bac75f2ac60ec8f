"""Fit a small network to a noisy wave with LBFGS, and print how well it predicts points that it has not seen.

    python examples/scripts/fit.py --steps 20

A typical script: the optimizer calls the loss itself. It does not use autocompile.
"""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 512)[:, None]
    y = torch.sin(2 * x) + 0.05 * torch.randn_like(x)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for step in range(args.steps):
        loss = optimizer.step(closure)
        print(f"step {step + 1}: loss {loss.item():.6f}")
    with torch.no_grad():
        print(f"between the points: {nn.functional.mse_loss(model(x + 0.005), torch.sin(2 * (x + 0.005))).item():.6f}")


if __name__ == "__main__":
    main()
