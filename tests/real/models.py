"""Models that tests tune; importable by child processes."""

import copy
import ctypes
import dataclasses
import subprocess
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    """Embeds nothing, repeats a block, and ends in a head."""

    def __init__(self, width=32, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.second = nn.Conv2d(8, 8, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Counting(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return x * 2


def under_autocast():
    return torch.is_autocast_enabled("cpu")


def sleeps(x):
    if under_autocast():
        time.sleep(600)
    return x @ x


def segfaults(x):
    if under_autocast():
        ctypes.string_at(0)
    return x @ x


def allocates(x):
    if under_autocast():
        return torch.ones(1 << 33, dtype=torch.float64)
    return x @ x


def answers_nan(x):
    y = x @ x
    if under_autocast():
        y = y.float()
        y[0, 0] = float("nan")
    return y


def raises_unpicklable(x):
    if under_autocast():

        class Local(Exception):
            def __reduce__(self):
                raise TypeError("not me")

            def __str__(self):
                raise ValueError("nor this")

        raise Local(lambda: x)
    return x @ x


def exits(x):
    if under_autocast():
        raise SystemExit(3)
    return x @ x


def returns_text(x):
    return f"{x.sum()}"


class Averaging(nn.Module):
    """Puts another tensor in the place of its buffer at every call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.zeros(4))

    def forward(self, x):
        self.ema = self.ema * 0.9 + x.mean(0) * 0.1
        return x + self.ema


def writes_into_its_input(x):
    x.mul_(1.5)
    if not torch.isfinite(x).all():
        raise RuntimeError("diverged")
    return x + 1


class Answer:
    def __init__(self, y):
        self.y = y
        self.notes = ["a", {"mean": y.mean()}]


def returns_a_class_of_its_own(x):
    return Answer(x @ x)


def starts_something(x):
    subprocess.Popen(["sleep", "777.25"])
    return x @ x


@dataclasses.dataclass
class Scored:
    """What `Scorer` returns."""

    scores: torch.Tensor
    best: torch.Tensor
    source: str


torch.utils._pytree.register_pytree_node(
    Scored,
    lambda scored: ([scored.scores, scored.best, scored.source], None),
    lambda leaves, _context: Scored(*leaves),
    serialized_type_name="models.Scored",
)


class Scorer(nn.Module):
    """Several arguments, one of them a constant, a mask, a buffer, and an output class of its own."""

    def __init__(self, width=16):
        super().__init__()
        self.register_buffer("shift", torch.arange(width, dtype=torch.float32) / width)
        self.register_buffer("temperature", torch.tensor(2.0), persistent=False)
        self.bias = nn.Parameter(torch.arange(4.0))
        self.log_scale = nn.Parameter(torch.zeros(1))
        self.dropout = nn.Dropout(0.5)
        self.plain = torch.full((width,), 0.5)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x, mask, activation="gelu"):
        hidden = getattr(nn.functional, activation)(self.up(x + self.shift * self.plain))
        scores = (self.down(hidden) * mask.unsqueeze(-1)).sum(1) / self.temperature
        scores = (
            self.dropout(scores) * self.log_scale.exp()
            + self.bias.repeat(scores.shape[1] // 4)
            + torch.tensor([0.25]) * torch.linspace(0, 1, 3).sum()
        )
        return Scored(scores, scores.argmax(-1), "scorer")


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.other.weight = self.one.weight

    def forward(self, x):
        return self.other(torch.relu(self.one(x)))


OUTSIDE = torch.ones(4, 4)


def adds_to_its_argument(features):
    features["twice"] = features["x"] * 2
    return features["twice"] + 1


def takes_a_global(x):
    return x @ OUTSIDE


class BatchStatistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x)


class Knotted(nn.Module):
    """Blocks that are shared, called several times a step, and have a hook that changes what they give."""

    def __init__(self, width=32):
        super().__init__()
        shared = Block(width)
        self.layers = nn.ModuleList([Block(width), shared, shared, Block(width)])
        self.layers[0].register_forward_hook(doubled)

    def forward(self, x):
        for layer in self.layers:
            x = layer(layer(x))
        return x


def doubled(_module, _arguments, output):
    return output * 2


class Noting(nn.Module):
    """Breaks the graph: what it calls cannot be traced."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(32))

    def forward(self, x):
        print(end="")
        return x * self.scale


class Interrupted(nn.Module):
    """Two blocks around something that breaks the graph."""

    def __init__(self):
        super().__init__()
        self.before, self.noting, self.after = Block(32), Noting(), Block(32)

    def forward(self, x):
        return self.after(self.noting(self.before(x)))


class Masked(nn.Module):
    """Attention among the words that a mask leaves; without `heeds` it attends to all of them."""

    def __init__(self, heeds=True):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(50, 16)
        self.out = nn.Linear(16, 16)
        self.heeds = heeds

    def forward(self, words, attention_mask):
        """(batch, length) each; gives (batch, length, 16) and (batch, 16)."""
        x = self.embedding(words)
        scores = x @ x.transpose(1, 2)
        if self.heeds:
            scores = scores.masked_fill(attention_mask[:, None, :] == 0, -1e9)
        each = self.out(scores.softmax(-1) @ x)
        return {"each": each, "first": each[:, 0]}


class Calls(nn.Module):
    """Counts its calls in a plain attribute, and asks for it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x) if self.calls > 0 else x


class Asking(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.1, self.training)


class KeyCache:
    """What a model remembers between calls, in a class that nobody else knows."""

    def __init__(self, keys):
        self.keys = keys


class Remembering(nn.Module):
    def forward(self, x):
        return {"scores": x * 2, "past": KeyCache(x)}


class Talker(torch.nn.Module):
    """Has methods that call it, as models of libraries do."""

    kinds = []

    def __init_subclass__(cls):
        Talker.kinds.append(cls)

    def __init__(self):
        super().__init__()
        self.config = {"limit": 3}
        self.body = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.body(x).tanh()

    def generate(self, x):
        """Calls itself by each of its names, and through another method."""
        self.steps = 3
        x = self(x)
        x = self.forward(x)
        return self.once_more(x)

    def once_more(self, x):
        return self(x)

    def fresh(self):
        return type(self)()

    def copied(self):
        return copy.deepcopy(self)

    @property
    def width(self):
        return self.body.in_features


class Chatter(Talker):
    def once_more(self, x):
        return super().once_more(x) + 1
