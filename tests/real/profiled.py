"""Models, loaders and datasets for the tests of profiles."""

import os
import time

import torch
from torch import nn
from torch.utils.data import Dataset


class TinyOperators(nn.Module):
    def forward(self, x):
        for _ in range(100):
            x = x * 1.01 + 0.1
        return x


class LargeOperators(nn.Module):
    def forward(self, x):
        # A single allocation for all operators: on some machines, new pages are slow and would bound the model instead.
        y = x.add(1)
        for _ in range(15):
            y.mul_(0.5)
        return y


class Slow(Dataset):
    """Five milliseconds a row, and a label that no model asks for."""

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((8,), float(index % 7)), index


class Dying(Slow):
    def __getitem__(self, index):
        os._exit(3)


class Raising(Slow):
    def __getitem__(self, index):
        raise KeyError("row 3 is missing")


class Breaking(nn.Module):
    """Four common graph breaks; the comments are what the test looks the lines up by."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        print("seen")  # breaks: print
        if x.sum().item() > 0:  # breaks: branch
            x = x * 2
        x = x + os.getppid() * 1e-9  # breaks: call
        return x[x > 0] * 3  # breaks: shape


class Mended(nn.Module):
    """The same after its advice was followed."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.parent = os.getppid()

    def forward(self, x):
        x = self.first(x)
        if not torch.compiler.is_compiling():
            print("seen")
        x = torch.where(x.sum() > 0, x * 2, x)
        x = x + self.parent * 1e-9
        return torch.where(x > 0, x, 0) * 3


class Replacing(nn.Module):
    """Puts another module in its child's place at every call."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        y = self.inner(x)
        self.inner = nn.Linear(8, 8)
        return y
