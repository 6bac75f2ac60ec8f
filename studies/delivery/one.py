"""Run one process of the study and print a JSON object.

python studies/delivery/one.py tune MODEL SECONDS DIRECTORY    # tune, and save the result in DIRECTORY
python studies/delivery/one.py load MODEL DIRECTORY            # start as production does
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from models import model_of

import autocompile
from autocompile.core.serving import Serving


def tune(name: str, budget_s: float, directory: Path) -> dict[str, Any]:
    """Tune; return what was recommended and packed, and how long it took."""
    model, inputs = model_of(name)
    began = time.perf_counter()
    rec = autocompile.optimize(
        model, inputs, budget=budget_s, strategy="quick", output=directory, seed=0, progress=False
    )
    took_s = time.perf_counter() - began
    artifact = rec.document.artifact
    return {
        "took_s": round(took_s, 2),
        "winner": rec.document.winner.label,
        "speedup": round(rec.speedup.value, 3),
        "packed": str(artifact.serving),
        "timed": 0 if artifact.untimed else rec.document.winner.processes,
        "packed_speedup": None if artifact.untimed else round(rec.speedup.value, 3),
        "candidates": sum(entry.status == "measured" for entry in rec.trials),
        "headline": " ".join(str(rec).split("\n\n")[0].split()),
    }


def load(name: str, directory: Path) -> dict[str, Any]:
    """Return what `load` serves, how long loading and the first call take, and its notes and warnings."""
    model, inputs = model_of(name)
    call = (lambda m: m(**inputs)) if isinstance(inputs, dict) else (lambda m: m(inputs))
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        began = time.perf_counter()
        module = autocompile.load(directory, model)
        loaded = time.perf_counter()
        call(module)
        answered = time.perf_counter()
    status = module.status
    return {
        "served": str(Serving(status.runtime, status.start)),
        "load_s": round(loaded - began, 4),
        "first_call_s": round(answered - loaded, 4),
        "notes": list(status.notes),
        "warnings": [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)],
    }


if __name__ == "__main__":
    step, name, *rest = sys.argv[1:]
    found = tune(name, float(rest[0]), Path(rest[1])) if step == "tune" else load(name, Path(rest[0]))
    print(json.dumps(found))
