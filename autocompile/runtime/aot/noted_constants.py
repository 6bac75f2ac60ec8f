"""Record the values of a program's constants. Only the compiler has them, because it made them from the weights."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from autocompile.runtime.aot.write_constants import NotMappable

# The compiler is shared by the whole process.
_NOTING = threading.Lock()


class Noted:
    """The constants of the programs that were compiled meanwhile."""

    def __init__(self) -> None:
        self._found: list[dict[str, torch.Tensor] | None] = []

    def constants(self) -> dict[str, torch.Tensor]:
        """Return the constants of the one program that was compiled, by their names in its package.

        Raises NotMappable.
        """
        found = self._found[0] if len(self._found) == 1 else None
        if found is None:
            raise NotMappable("this version of torch does not expose the constants that it made")
        return found

    def note(self, graph: Any) -> None:
        """Record a graph's constants after it was compiled."""
        try:
            self._found.append(
                {
                    graph.allocated_constant_name[name]: graph.get_original_value_of_constant(name)
                    for name in graph.constants
                    if name not in graph.folded_constants
                }
            )
        except (AttributeError, LookupError, TypeError):  # the graph of another version of torch
            self._found.append(None)


@contextmanager
def noting() -> Iterator[Noted]:
    """Record the constants of the programs that AOTInductor compiles meanwhile."""
    from torch._inductor import codecache  # noqa: PLC0415  imports the compiler

    noted = Noted()
    compiler: Any = getattr(codecache, "AotCodeCompiler", None)
    if not hasattr(compiler, "compile"):
        yield noted
        return
    with _NOTING:
        kept, compiled = vars(compiler)["compile"], compiler.compile

        def compile_noting(graph: Any, *arguments: Any, **options: Any) -> Any:
            made = compiled(graph, *arguments, **options)
            noted.note(graph)
            return made

        compiler.compile = staticmethod(compile_noting)
        try:
            yield noted
        finally:
            compiler.compile = kept
