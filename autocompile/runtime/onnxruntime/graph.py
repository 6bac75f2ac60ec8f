"""The record of a program for ONNX Runtime in the manifest. Does not import torch."""

from __future__ import annotations

from typing import Literal

import msgspec

from autocompile.core.program import Program
from autocompile.core.serde import Record
from autocompile.processor import instructions


class Value(Record, frozen=True):
    """An input or output of the graph: its name there, and its dtype as NumPy and torch name it."""

    name: str
    dtype: str


class Graph(Record, frozen=True):
    """One form of the program: `file`, and `data` with its weights, or "" if it has none.

    `level` is how far it must still be rewritten when it is loaded. `processor` lists the extensions of the only kind
    of processor that it may run on, because its weights are laid out for it; "" stands for any processor.
    """

    file: str
    data: str = ""
    level: Literal["none", "all"] = "none"
    processor: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of its files."""
        return (self.file, self.data) if self.data else (self.file,)


class Session(Record, frozen=True):
    """What is needed to run the program, with or without torch.

    Inputs and outputs are in the order of the call's tensors. `graphs` are its forms, the fastest first; the last one
    is for any processor. `threads` is the number of threads within an operator, or 0 for as many as torch has. `spins`
    is whether they spin between calls.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    graphs: tuple[Graph, ...]
    device_type: str = "cpu"
    threads: int = 0
    spins: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all files."""
        return tuple(name for graph in self.graphs for name in graph.files)


def this_processor() -> str:
    """Return this processor's extensions as a graph's record has them, or "" if they are not known."""
    return " ".join(instructions())


def session_of(program: Program) -> Session:
    """Return the program's record. Raises ValueError if it cannot be read, or names files that are not its own."""
    session = msgspec.convert(program.own, Session)
    strange = [name for name in session.files if name not in program.files]
    if strange or not session.graphs:
        raise ValueError(f"it names {strange[0]}, which is not one of its files" if strange else "it has no graph")
    return session


def graph_for_here(session: Session) -> Graph:
    """Return the form of the program that is the fastest on this processor."""
    here = this_processor()
    return next((graph for graph in session.graphs if graph.processor in ("", here)), session.graphs[-1])
