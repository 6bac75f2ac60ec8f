"""Convert what was seen of a script to a workload."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from autocompile.core.workload import Workload
from autocompile.workload.generating.spooling import spool_generation
from autocompile.workload.identity.facts import workload_fingerprint
from autocompile.workload.spool import spool
from autocompile.workload.training.entry import entry_of
from autocompile.workload.watching.chosen import Chosen


def spool_seen(seen: Chosen, directory: Path, *, name: str, tries_loaders: bool = False) -> Workload:
    """Write the module and its calls into `directory`, as `spool` does. Raises what `spool` raises.

    The share of each kind of call differs slightly each time that a script is watched, so it is not part of the
    workload's fingerprint. The DataLoader that feeds the module is tried with other settings if the script waits for
    it, and always with `tries_loaders`.
    """
    if seen.generation is not None:
        plain = spool_generation(seen.generation, directory, name=name)
    else:
        plain = spool(seen.module, list(seen.inputs), directory, name=name, training=seen.training)
    training = entry_of(seen.module, seen.training)[1] if seen.training else ""
    prompts = plain.prompts and replace(plain.prompts, fingerprint=_fingerprint(plain.prompts), script=seen.entry)
    pipeline = None
    if seen.feeding is not None:
        took, trains = seen.entry.share * seen.entry.seconds, seen.training is not None
        pipeline = seen.feeding.pipeline(directory, took, tries=tries_loaders, trains=trains)
    notes = (*seen.notes, *plain.notes)
    return replace(
        plain,
        script=seen.entry,
        notes=notes,
        fingerprint=_fingerprint(plain, training),
        pipeline=pipeline,
        prompts=prompts,
    )


def _fingerprint(workload: Workload, training: str = "") -> str:
    kinds = [replace(signature, weight=0.0) for signature in workload.signatures]
    return workload_fingerprint(workload.identity, kinds, training)
