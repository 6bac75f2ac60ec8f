"""The directory of a recommendation: its files, and which process may write to it. No torch."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from autocompile.artifact.integrity import MANIFEST
from autocompile.artifact.store import deliver, is_store
from autocompile.core.document import SCHEMA_VERSION, Document
from autocompile.core.errors import InvalidRecommendation, OutputConflict
from autocompile.core.identity import Identity, differences, summary
from autocompile.core.manifest import Manifest
from autocompile.core.protocol import SCRIPT_LOG
from autocompile.core.serde import Record, from_json, to_json, write_atomically
from autocompile.core.workload import TrainingEntry, Workload
from autocompile.scratch import Scratch, claim, clear

DOCUMENT, SNIPPET, REPORT, STUDY, WORK = (
    "recommendation.json", "snippet.py", "report.html", "study.db", ".work",
)  # fmt: skip
_OURS = frozenset({DOCUMENT, SNIPPET, REPORT, MANIFEST, STUDY, f"{STUDY}-journal", WORK, SCRIPT_LOG})
_OF_PROMPTS = re.compile(r"prompts-[0-9a-f]{12}")
_OWNER = "pid"
_ELSEWHERE = "choose another output directory, or empty this one"


def read_document(directory: Path) -> Document:
    """Read the recommendation in `directory`. Raises InvalidRecommendation if there is none, or it cannot be read."""
    path = directory / DOCUMENT
    try:
        data = path.read_bytes()
    except OSError as fault:
        why = "" if directory.is_dir() and isinstance(fault, FileNotFoundError) else f" ({fault.strerror})"
        raise InvalidRecommendation(
            f"contains no recommendation{why}",
            where=str(directory),
            remedy="create one with `autocompile tune`",
        ) from fault
    try:
        version = from_json(data, _Versioned).schema_version
        document = from_json(data, Document) if version == SCHEMA_VERSION else None
    except msgspec.DecodeError as fault:
        raise InvalidRecommendation(str(fault), where=str(path), remedy="tune again with this version") from fault
    if document is None:
        raise InvalidRecommendation(
            f"has schema version {version}, but this version of autocompile reads {SCHEMA_VERSION}",
            where=str(path),
            remedy="upgrade autocompile" if version > SCHEMA_VERSION else "tune again with this version",
        )
    return document


class _Versioned(Record, frozen=True):
    """The field that documents of all versions have."""

    schema_version: int


def write_recommendation(directory: Path, document: Document, artifact: Path, report: str) -> None:
    """Write a recommendation: the document, its snippet and its `report`, and the files in `artifact`.

    Raises OutputConflict if the directory contains anything else, such as another workload's recommendation.
    """
    check_room(directory, document)
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / SNIPPET, document.snippet.encode())
    write_atomically(directory / REPORT, report.encode())
    write_atomically(directory / DOCUMENT, to_json(document, indent=2) + b"\n")
    deliver(artifact, directory)


def check_room(directory: Path, document: Document) -> None:
    """Raise OutputConflict if the directory contains anything but a recommendation for the same workload."""
    check_output(directory)
    _check_same(directory, document.workload.fingerprint)


def check_output(directory: Path) -> None:
    """Raise OutputConflict if the directory contains anything that does not belong to a recommendation."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise OutputConflict("is a file", where=str(directory), remedy="choose another output directory")
    others = sorted(entry.name for entry in directory.iterdir() if not _is_ours(entry.name))
    if others:
        raise OutputConflict(f"contains something else ({others[0]})", where=str(directory), remedy=_ELSEWHERE)


def _is_ours(name: str) -> bool:
    return (
        name in _OURS
        or is_store(name)
        or _OF_PROMPTS.fullmatch(name) is not None
        or (name.startswith(".") and name.endswith(".part"))  # half-written by a process that was killed
    )


def check_same_workload(directory: Path, workload: Workload) -> None:
    """Raise OutputConflict that names what differs, if the recommendation there is for another workload."""
    _check_same(directory, workload.fingerprint, _what_differs(directory, workload))


def remove_prompts(directory: Path, *, but: str = "") -> None:
    """Remove recommendations for prompts that the recommendation in `directory` does not use, except the one named."""
    for entry in directory.iterdir():
        if _OF_PROMPTS.fullmatch(entry.name) and entry.name != but:
            shutil.rmtree(entry, ignore_errors=True)


def _check_same(directory: Path, fingerprint: str, differs: str = "") -> None:
    if (directory / DOCUMENT).exists() and _fingerprint_in(directory) != fingerprint:
        fault = f"contains the recommendation of another workload{differs}"
        raise OutputConflict(fault, where=str(directory), remedy=_ELSEWHERE)


class _Tuned(Record, frozen=True):
    """The field that the workloads in documents of all versions have."""

    fingerprint: str


class _Recommended(Record, frozen=True):
    """The field with the workload, in documents of all versions."""

    workload: _Tuned


def _fingerprint_in(directory: Path) -> str:
    """Return the fingerprint of the recommendation's workload, whichever version wrote it."""
    try:
        return from_json((directory / DOCUMENT).read_bytes(), _Recommended).workload.fingerprint
    except msgspec.DecodeError:
        return read_document(directory).workload.fingerprint  # raises an error that describes the problem


def check_workload(directory: Path, document: Document, workload: Workload) -> None:
    """Raise InvalidRecommendation that names what differs, if `document`, in `directory`, is for another workload."""
    if document.workload.fingerprint != workload.fingerprint:
        fault = f"is for another workload{_what_differs(directory, workload, document)}"
        raise InvalidRecommendation(fault, where=str(directory), remedy="tune it again")


def _what_differs(directory: Path, workload: Workload, document: Document | None = None) -> str:
    """Return how a workload differs from that of the recommendation in `directory`; "" if that is not known.

    `document` is the document there, if it was already read. This reads the manifest, but opens none of its files.
    """
    try:
        then = from_json((directory / MANIFEST).read_bytes(), Manifest).identity
        recorded = (document or read_document(directory)).workload
    except (OSError, msgspec.DecodeError, InvalidRecommendation):
        return ""
    found = differences(*_of_common_attributes(then, workload.identity))
    if found:
        return f": {summary(found)}"
    if recorded.signatures != workload.signatures:
        return ": its inputs have other sizes or dtypes, or occur with other frequencies"
    return _trained_otherwise(recorded.training, workload.training)


def _trained_otherwise(then: TrainingEntry | None, now: TrainingEntry | None) -> str:
    """Return how two trainings of one model differ, or that only one of the two workloads is one; "" if neither is."""
    if then is None or now is None:
        return "" if then is now else f": it {'is trained' if now else 'is called'} now, and was not before"
    named = (("optimizer", "the optimizer"), ("accumulate", "accumulate"), ("clip_norm", "clip_norm"))
    for field, words in named:
        before, here = getattr(then, field), getattr(now, field)
        if before != here:
            return f": {words} is {here}, was {before}"
    return ": its loss or the settings of its optimizer differ"


def _of_common_attributes(then: Identity, now: Identity) -> tuple[Identity, Identity]:
    """Return both with the attributes that both record, and without state.

    An artifact records only the attributes that it depends on, and a workload records no state.
    """
    common = then.attributes.keys() & now.attributes.keys()
    one, other = (
        msgspec.structs.replace(
            identity, attributes={n: t for n, t in identity.attributes.items() if n in common}, state={}
        )
        for identity in (then, now)
    )
    return one, other


@contextmanager
def working_directory(output: Path | None) -> Iterator[Path]:
    """Yield a directory for files that a run needs only while it runs: within `output`, or a temporary directory.

    Files of a killed run are removed first. Raises OutputConflict if another run is still working there.
    """
    if output is None:
        with Scratch() as temporary:
            yield temporary
        return
    check_output(output)
    existed = output.exists()
    work = output / WORK
    try:
        claimed = _claim(work)
    except OSError as fault:
        raise OutputConflict(
            f"is not writable ({fault.strerror})", where=str(output), remedy="choose another output directory"
        ) from fault
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(claimed)
        if not existed and not any(output.iterdir()):
            output.rmdir()


def _claim(work: Path) -> int:
    """Lock the directory for this run, remove the files of a killed run, and return the descriptor of the lock."""
    work.mkdir(parents=True, exist_ok=True)
    claimed = claim(work / _OWNER)
    if claimed is None:
        pid = (work / _OWNER).read_text()
        raise OutputConflict(
            f"another run (process {pid}) is working there", where=str(work.parent), remedy="wait for it, or stop it"
        )
    clear(work, _OWNER)
    os.truncate(claimed, 0)
    os.write(claimed, str(os.getpid()).encode())
    return claimed
