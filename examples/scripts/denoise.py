"""Train an autoencoder with Lightning to remove noise from waves, and keep the best checkpoint.

    python examples/scripts/denoise.py --epochs 3 --output runs/denoise

A typical script: a LightningModule, and a Trainer that contains the loop. It does not use autocompile.
"""

import argparse
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Denoiser(L.LightningModule):
    def __init__(self, length=128, width=256, learning_rate=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(length, width), nn.GELU(), nn.Linear(width, 32))
        self.decoder = nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, length))

    def forward(self, noisy):
        return self.decoder(self.encoder(noisy))

    def training_step(self, batch, batch_idx):
        noisy, clean = batch
        loss = F.mse_loss(self(noisy), clean)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        noisy, clean = batch
        self.log("loss", F.mse_loss(self(noisy), clean))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def waves(count, length, seed):
    generator = torch.Generator().manual_seed(seed)
    frequency = 1 + 9 * torch.rand(count, 1, generator=generator)
    phase = 6.28 * torch.rand(count, 1, generator=generator)
    clean = torch.sin(frequency * torch.linspace(0, 3, length) + phase)
    return TensorDataset(clean + 0.3 * torch.randn(count, length, generator=generator), clean)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    L.seed_everything(0)
    train = DataLoader(waves(args.samples, 128, seed=1), args.batch_size, shuffle=True, num_workers=args.workers)
    test = DataLoader(waves(args.samples // 4, 128, seed=2), 2 * args.batch_size, num_workers=args.workers)
    checkpoint = ModelCheckpoint(args.output, filename="best", monitor="loss")
    trainer = L.Trainer(
        max_epochs=args.epochs,
        gradient_clip_val=1.0,
        logger=CSVLogger(args.output),
        callbacks=[checkpoint],
        enable_progress_bar=False,
    )
    trainer.fit(Denoiser(width=args.width), train, test)
    print(f"best loss {checkpoint.best_model_score:.4f} in {checkpoint.best_model_path}")


if __name__ == "__main__":
    main()
