"""Train a small convolutional network on images of noise and stripes, and keep a checkpoint of each epoch.

    python examples/scripts/images.py --epochs 3 --output runs/images

A typical script: a class that trains, evaluates and saves. It does not use autocompile.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, classes, width=32):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        return self.head(self.dropout(self.features(x).mean((2, 3))))


class Trainer:
    def __init__(self, model, optimizer, output):
        self.model, self.optimizer, self.output = model, optimizer, output
        self.best = 0.0

    def train_epoch(self, loader):
        self.model.train()
        total = 0.0
        for images, labels in loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(loader)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        right = sum((self.model(images).argmax(1) == labels).sum().item() for images, labels in loader)
        return right / len(loader.dataset)

    def save(self, epoch):
        state = {"epoch": epoch, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, self.output / f"epoch{epoch}.pt")

    def fit(self, train, test, epochs):
        for epoch in range(epochs):
            loss = self.train_epoch(train)
            accuracy = self.evaluate(test)
            self.best = max(self.best, accuracy)
            self.save(epoch)
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}, best {self.best:.3f}")


def images(count, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    waves = torch.sin(torch.arange(32) * (labels[:, None] + 1) * 0.4)
    pictures = torch.randn(count, 3, 32, 32, generator=generator) + waves[:, None, None, :]
    return TensorDataset(pictures, labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    args.output.mkdir(parents=True, exist_ok=True)
    model = Net(classes=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    train = DataLoader(images(args.samples, 4, seed=1), args.batch_size, shuffle=True, drop_last=True)
    test = DataLoader(images(256, 4, seed=2), args.batch_size)
    Trainer(model, optimizer, args.output).fit(train, test, args.epochs)


if __name__ == "__main__":
    main()
