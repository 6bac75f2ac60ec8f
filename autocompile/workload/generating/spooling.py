"""Send decode steps and prompts to another process, with texts to test generation as a whole there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from autocompile.core.workload import Workload
from autocompile.workload import pickling, revival
from autocompile.workload.spool import pickling_fault, spool

if TYPE_CHECKING:  # imports transformers
    from autocompile.workload.generating.generation import Generation

_TEXTS, _PROMPTS = "texts.pt", "prompts"


def spool_generation(generation: Generation, directory: Path, *, name: str = "", keep: Path | None = None) -> Workload:
    """Write the decode step of a model that generates into `directory`, as `spool` does, and its texts to another file.

    The calls for its prompts, if they are to be tuned, are written into a directory within `directory`.
    Texts with arguments that cannot be pickled, such as a user's own stopping criterion, are left out.
    """
    own = name or f"{generation.entry.module}.generate"
    texts = [dict(text) for text in generation.texts if not pickling_fault(text)]
    plain = spool(generation.decoding, list(generation.samples), directory, name=own, keep=keep)
    torch.save(texts, directory / _TEXTS, pickle_module=pickling)
    prompts, within = generation.prompts, directory / _PROMPTS
    if prompts is None:
        return replace(plain, kind="generation", generation=generation.entry)
    second = spool(prompts.prompting, list(prompts.samples), within, name=f"{own}, prompts")
    torch.save(texts, within / _TEXTS, pickle_module=pickling)
    return replace(
        plain,
        kind="generation",
        generation=generation.entry,
        prompts=replace(second, kind="prompt", generation=prompts.entry),
    )


def unspool_texts(workload: Workload) -> list[dict[str, Any]]:
    """Return the arguments of calls of `generate`."""
    path = Path(workload.directory) / _TEXTS
    return torch.load(path, weights_only=False, pickle_module=revival)  # type: ignore[no-any-return]
