"""Small models for training, each with a batch and a loss; some have dropout, batch statistics or tied weights."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training


class Transformer(nn.Module):
    """Two blocks with dropout; the head's weight is the embedding's."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.place = nn.Parameter(torch.randn(8, 16) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 32, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        hidden = self.embedding(x) + self.place
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(32, 16), nn.Linear(24, 32)
        self.lstm = nn.LSTM(16, 24, 2, dropout=0.2, batch_first=True)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


def convolutional():
    """Whose convolutions have a bias that batch normalization takes away again."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def perceptron():
    return nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def classified(model, batch):
    inputs, labels = batch
    return functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())


def fitted(model, batch):
    inputs, targets = batch
    return functional.mse_loss(model(inputs), targets)


def _tokens():
    return torch.randint(32, (4, 8)), torch.randint(32, (4, 8))


@dataclass(frozen=True)
class Learner:
    model: Any
    loss: Any
    batch: Any


LEARNERS = {
    "transformer": Learner(Transformer, classified, _tokens),
    "cnn": Learner(convolutional, classified, lambda: (torch.randn(8, 3, 12, 12), torch.randint(10, (8,)))),
    "lstm": Learner(Recurrent, classified, _tokens),
    "mlp": Learner(perceptron, fitted, lambda: (torch.randn(32, 10), torch.randn(32, 1))),
}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)


def learner(name, optimizer=adamw, *, accumulate=1, clip_norm=None, of=TrainingStep, **options):
    """A step of the named learner, and a sample for it; the same at every call."""
    kind = LEARNERS[name]
    torch.manual_seed(0)
    module = kind.model().train()
    sample = Sample(tuple(kind.batch() for _ in range(accumulate)), {})
    training = Training(loss=kind.loss, optimizer=optimizer, accumulate=accumulate, clip_norm=clip_norm)
    return of(module, training, **options), sample
