"""Parse names of a script's functions: `pkg.mod:name`, or `name` for one of the script itself. No torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autocompile.core.errors import InvalidValue, InvalidWorkload

_OPTION = "--function"
_HOW = "give pkg.mod:name, or the name of one of the script's own functions; Class.method works, too"
_MOST_TOLD = 6


@dataclass(frozen=True)
class FunctionName:
    """`module` is the module that defines it, or "" for the script.

    `path` is its name there, after those of its classes.
    """

    module: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        own = ".".join(self.path)
        return f"{self.module}:{own}" if self.module else own


def function_name(text: str) -> FunctionName:
    """Parse a function's name. Raises InvalidValue if it is not a valid one."""
    module, colon, own = text.rpartition(":")
    name = FunctionName(module, tuple(own.split(".")))
    parts = [*name.path, *(module.split(".") if colon else ())]
    if not all(part.isidentifier() for part in parts):
        raise InvalidValue(f"{text!r} names no function", where=_OPTION, remedy=_HOW)
    return name


def placed(name: FunctionName, script: Path, package: str = "") -> FunctionName:
    """Return where the function is defined. A name that the script only imports belongs to another module.

    `package` is the package that the script's relative imports refer to. Raises InvalidWorkload if the script neither
    defines nor imports the name at its top level.
    """
    if name.module:
        return name
    body = list(_statements(ast.parse(script.read_bytes()).body))
    first, *rest = name.path
    if _defines(body, name.path):
        return name
    for statement in body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == first:
                    return FunctionName(_imported_from(statement, package), (alias.name, *rest))
    there = ", ".join([one.name for one in body if isinstance(one, ast.FunctionDef)][:_MOST_TOLD]) or "none"
    raise InvalidWorkload(
        f"defines no function {name} at its top level, and imports none of that name",
        where=str(script),
        remedy=f"it defines: {there}; for one of another module give pkg.mod:name",
    )


def _imported_from(statement: ast.ImportFrom, package: str) -> str:
    if not statement.level:
        return statement.module or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - statement.level + 1], *([statement.module] if statement.module else [])])


def _defines(body: Iterable[ast.stmt], path: tuple[str, ...]) -> bool:
    first, *rest = path
    for statement in body:
        if not rest and isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == first:
            return True
        if rest and isinstance(statement, ast.ClassDef) and statement.name == first:
            return _defines(_statements(statement.body), tuple(rest))
    return False


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run where the body runs, in any branch."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                yield from _statements(getattr(statement, part, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from _statements(handler.body)


def with_decorator(source: bytes, file: str, path: tuple[str, ...], decorator: str) -> ast.Module:
    """Return the script with this decorator added as the outermost one of the function that it defines at `path`."""
    tree = ast.parse(source, file)
    for found in _definitions(tree.body, path):
        line = found.decorator_list[0] if found.decorator_list else found
        name = ast.Name(decorator, ast.Load())
        found.decorator_list.insert(0, ast.copy_location(name, line))
    return ast.fix_missing_locations(tree)


def _definitions(body: Iterable[ast.stmt], path: tuple[str, ...]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    first, *rest = path
    for statement in _statements(body):
        if not rest and isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == first:
            yield statement
        elif rest and isinstance(statement, ast.ClassDef) and statement.name == first:
            yield from _definitions(statement.body, tuple(rest))
