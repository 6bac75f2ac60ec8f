"""The values of a program's constants, which nobody but the compiler has: it made them of the weights."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from autocompile.runtime.aot.write_constants import NotMappable

# The compiler is the whole process's.
_NOTING = threading.Lock()


class Noted:
    """What was compiled meanwhile."""

    def __init__(self) -> None:
        self._found: list[dict[str, torch.Tensor] | None] = []

    def constants(self) -> dict[str, torch.Tensor]:
        """Of the one program that was compiled, by the names that its package has for them. Raises NotMappable."""
        found = self._found[0] if len(self._found) == 1 else None
        if found is None:
            raise NotMappable("this torch does not tell what it made of them")
        return found

    def note(self, graph: Any) -> None:
        """Remember a graph's constants, once it was compiled."""
        try:
            self._found.append(
                {
                    graph.allocated_constant_name[name]: graph.get_original_value_of_constant(name)
                    for name in graph.constants
                    if name not in graph.folded_constants
                }
            )
        except (AttributeError, LookupError, TypeError):  # a graph of another torch's
            self._found.append(None)


@contextmanager
def noting() -> Iterator[Noted]:
    """Note the constants of what AOTInductor compiles."""
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
