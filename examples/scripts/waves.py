"""Train two recurrent cells with LBFGS to predict the next value of a sine wave, and let them continue the waves.

    python examples/scripts/waves.py --steps 6

A typical script: all waves are one batch, in double precision, and the optimizer calls the closure as often as it
needs to. It does not use autocompile.
"""

import argparse

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.lower = nn.LSTMCell(1, width)
        self.upper = nn.LSTMCell(width, width)
        self.read = nn.Linear(width, 1)

    def forward(self, waves, further=0):
        """Return the next value after each value of the waves, then `further` values, each from the one before it."""
        blank = waves.new_zeros(len(waves), self.width)
        low = high = (blank, blank)
        told = []
        for moment in range(waves.shape[1] + further):
            value = waves[:, moment : moment + 1] if moment < waves.shape[1] else told[-1]
            low = self.lower(value, low)
            high = self.upper(low[0], high)
            told.append(self.read(high[0]))
        return torch.cat(told, dim=1)


def sines(count, length, generator):
    """Return `count` sine waves of the same length that begin at random places."""
    begins = torch.randint(-80, 80, (count, 1), generator=generator)
    return torch.sin((torch.arange(length) + begins).double() / 10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--waves", type=int, default=48)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--further", type=int, default=32)
    args = parser.parse_args()

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    seen = sines(args.waves, args.length, generator)
    held_out = sines(4, args.length + args.further, generator)
    model = Forecaster(args.width).double()
    criterion = nn.MSELoss()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8)

    def closure():
        optimizer.zero_grad()
        loss = criterion(model(seen[:, :-1]), seen[:, 1:])
        loss.backward()
        return loss

    for step in range(args.steps):
        loss = optimizer.step(closure)
        with torch.no_grad():
            drawn = model(held_out[:, : args.length], further=args.further - 1)
            off = criterion(drawn[:, args.length - 1 :], held_out[:, args.length :])
        print(f"step {step + 1}: loss {loss.item():.6f}, drawn further it is off by {off.item():.6f}")


if __name__ == "__main__":
    main()
