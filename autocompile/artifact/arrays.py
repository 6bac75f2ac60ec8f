"""Serves a recommendation for NumPy arrays, in a process that never imports torch."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from autocompile.artifact.integrity import Opened, open_artifact
from autocompile.artifact.machine import of_the_library, of_the_processor
from autocompile.artifact.options import check_served
from autocompile.core.errors import InvalidArtifact, InvalidRecommendation, UsageError
from autocompile.core.manifest import Manifest
from autocompile.core.program import Program
from autocompile.core.serde import Record
from autocompile.runtime.array_guards import Array, ArrayGuard
from autocompile.runtime.catalogue import kind
from autocompile.runtime.files import Files
from autocompile.runtime.kind import Kind
from autocompile.runtime.structure import structure_of

# A runtime's module for arrays defines `load_arrays`: from a program and its files to a function of its input arrays.
Run = Callable[[Sequence[Array]], Sequence[Array]]
LoadArrays = Callable[[Program, Files], Run]


class ArrayStatus(Record, frozen=True):
    """How an `ArrayModule` serves: its runtime and configuration, the number of calls so far, and notes."""

    runtime: str
    label: str
    calls: int
    notes: tuple[str, ...]


class ArrayModule:
    """Called like the model, with NumPy arrays in place of tensors; it returns arrays in the model's structure."""

    def __init__(self, manifest: Manifest, programs: Sequence[_Served]) -> None:
        self._manifest, self._programs, self._calls = manifest, programs, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refusals = []
        for program in self._programs:
            arrays = program.guard(args, kwargs)
            if not isinstance(arrays, str):
                self._calls += 1
                return program.run(arrays)
            refusals.append(arrays)
        raise UsageError(
            f"the program was not compiled for this call: {refusals[0]}",
            where="load",
            remedy="`autocompile show` lists the calls that it takes; load it with the model to serve other calls",
        )

    @property
    def status(self) -> ArrayStatus:
        """The current status."""
        records = (name for served in self._programs for name in served.structure.classes())
        notes = tuple(f"a {name} in the output is returned as a dict" for name in dict.fromkeys(records))
        return ArrayStatus(self._manifest.serving.runtime, self._manifest.label, self._calls, notes)

    def __repr__(self) -> str:
        return f"<ArrayModule {self._manifest.label}, served by {self._manifest.serving}>"


class _Served:
    """One program behind its guard."""

    def __init__(self, program: Program, run: Run) -> None:
        self.program, self.guard, self._run = program, ArrayGuard(program), run
        self.structure = structure_of(program.output_spec)
        self._literals = [None if text is None else ast.literal_eval(text) for text in program.outputs]
        self._is_array = [text is None for text in program.outputs]

    def run(self, arrays: Sequence[Array]) -> Any:
        """Return the output, in the structure of the model's."""
        return self.structure.filled(self._leaves(iter(self._run(arrays))))

    def _leaves(self, outputs: Iterator[Array]) -> Iterator[Any]:
        for is_array, literal in zip(self._is_array, self._literals, strict=True):
            yield next(outputs) if is_array else literal


def load_arrays(path: str | Path, digest: str | None = None) -> ArrayModule:
    """Serve the recommendation at `path` for NumPy arrays; see `autocompile.load`."""
    opened = open_artifact(Path(path), digest)
    check_served(opened.manifest)
    manifest, own = opened.manifest, kind(opened.manifest.serving.runtime)
    problem, remedy = _problem(manifest, own)
    if problem:
        others = "load it without arrays=, or tune it again here"
        raise InvalidRecommendation(problem, where=str(path), remedy=f"{remedy}, {others}" if remedy else others)
    load = _implementation(own, str(path))
    return ArrayModule(manifest, [_Served(program, _loaded(load, opened, program)) for program in manifest.programs])


def _problem(manifest: Manifest, own: Kind) -> tuple[str, str]:
    """Return why the artifact cannot be served for arrays, and a remedy; or "" twice."""
    if manifest.serving.start != "load" or not own.arrays:
        return f"the packed runtime ({manifest.serving}) needs torch, and cannot serve NumPy arrays", ""
    different = next(of_the_processor(manifest.requirements), ("", ""))[1]
    return (different, "") if different else of_the_library(manifest.requirements, own, manifest.device_type)


def _implementation(own: Kind, path: str) -> LoadArrays:
    try:
        loads: LoadArrays = import_module(own.arrays).load_arrays
    except ImportError as fault:
        raise InvalidRecommendation(
            f"{own.library} cannot be imported: {fault}", where=path, remedy=own.install
        ) from fault
    return loads


def _loaded(load: LoadArrays, opened: Opened, program: Program) -> Run:
    try:
        return load(program, opened.files(program.directory))
    except Exception as fault:  # libraries raise various exceptions for a file that they cannot load
        said = str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
        raise InvalidArtifact(
            f"its program cannot be loaded: {said}", where=str(opened.directory), remedy="tune it again"
        ) from fault
