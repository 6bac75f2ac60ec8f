"""Train a generator against a discriminator, on two-dimensional points on a ring.

    python examples/scripts/gan.py --steps 300

A typical script: two models, two optimizers. It does not use autocompile.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def ring(count):
    angle = 2 * torch.pi * torch.rand(count)
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()

    torch.manual_seed(0)
    generator, discriminator = Generator(16, args.width), Discriminator(args.width)
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.5, 0.999))
    for_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real, fake = torch.ones(args.batch_size), torch.zeros(args.batch_size)

    for step in range(args.steps):
        made = generator(torch.randn(args.batch_size, 16))

        for_discriminator.zero_grad()
        told_real = F.binary_cross_entropy_with_logits(discriminator(ring(args.batch_size)), real)
        told_made = F.binary_cross_entropy_with_logits(discriminator(made.detach()), fake)
        (told_real + told_made).backward()
        for_discriminator.step()

        for_generator.zero_grad()
        fooled = F.binary_cross_entropy_with_logits(discriminator(made), real)
        fooled.backward()
        for_generator.step()
        if step % 50 == 49:
            print(f"step {step + 1}: discriminator {(told_real + told_made).item():.4f}, generator {fooled.item():.4f}")
    torch.save(generator.state_dict(), "generator.pt")


if __name__ == "__main__":
    main()
