"""What a program for ONNX Runtime is put together of: its record in the manifest. No torch."""

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
    """One form of the program: `file`, and `data` with its weights, "" if it has none.

    `level`: how far it is still to be rewritten when it is loaded. `processor`: the extensions of the only kind of
    processor that it may run on, as its weights are laid out for that; "" for any.
    """

    file: str
    data: str = ""
    level: Literal["none", "all"] = "none"
    processor: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """Their names."""
        return (self.file, self.data) if self.data else (self.file,)


class Session(Record, frozen=True):
    """What is needed to run the program, with torch or without: its values, in the order of the call's tensors.

    `graphs`: its forms, the fastest first, the last for any processor. `threads`: within an operator, or 0 for as many
    as torch has; `spins`: whether they spin between calls.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    graphs: tuple[Graph, ...]
    device_type: str = "cpu"
    threads: int = 0
    spins: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(name for graph in self.graphs for name in graph.files)


def this_processor() -> str:
    """The extensions that this processor has, as a graph's record has them; "" if that cannot be told."""
    return " ".join(instructions())


def session_of(program: Program) -> Session:
    """The program's record. Raises ValueError if it cannot be read, or names files that are not its own."""
    session = msgspec.convert(program.own, Session)
    strange = [name for name in session.files if name not in program.files]
    if strange or not session.graphs:
        raise ValueError(f"it names {strange[0]}, which is none of its files" if strange else "it has no graph")
    return session


def graph_for_here(session: Session) -> Graph:
    """The form of the program that is the fastest on this processor."""
    here = this_processor()
    return next((graph for graph in session.graphs if graph.processor in ("", here)), session.graphs[-1])
