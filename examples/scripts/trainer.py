"""Train a small BERT with transformers' Trainer to find out which of two words is more frequent in a text.

    python examples/scripts/trainer.py --epochs 2 --output runs/trainer

A typical script: the Trainer contains the loop and keeps checkpoints, and the model computes the loss. It does not use
autocompile.
"""

import argparse
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Texts(Dataset):
    """Texts whose words are numbers. The label says whether word 2 is more frequent than word 1."""

    def __init__(self, count, length, vocabulary, seed):
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(vocabulary, (count, length), generator=generator)
        rare = torch.randint(1, 3, (count, length), generator=generator)
        self.words = torch.where(torch.rand(count, length, generator=generator) < 0.5, rare, self.words)
        self.labels = ((self.words == 2).sum(1) > (self.words == 1).sum(1)).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        words = self.words[index]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": self.labels[index]}


def accuracy(predicted):
    return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--bf16", action="store_true", help="mixed precision")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    set_seed(0)
    config = BertConfig(
        vocab_size=100,
        hidden_size=args.width,
        intermediate_size=4 * args.width,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=args.length,
    )
    training = TrainingArguments(
        output_dir=str(args.output),
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=2 * args.batch_size,
        learning_rate=1e-3,
        weight_decay=0.01,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        dataloader_num_workers=args.workers,
        bf16=args.bf16,
        disable_tqdm=True,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=training,
        train_dataset=Texts(args.samples, args.length, config.vocab_size, seed=1),
        eval_dataset=Texts(args.samples // 4, args.length, config.vocab_size, seed=2),
        compute_metrics=accuracy,
    )
    trainer.train()
    trainer.save_model()
    found = trainer.evaluate()
    print(f"loss {found['eval_loss']:.4f}, accuracy {found['eval_accuracy']:.3f}")


if __name__ == "__main__":
    main()
