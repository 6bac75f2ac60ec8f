"""Determine from a script's text whether it defines its workload. No torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

_PAIR = {"model", "inputs"}
_WHOLE = "workload"


def defines_workload(path: Path) -> bool:
    """Return whether a script assigns `model` and `inputs`, or `workload`, when it is imported.

    Names that a loop assigns, such as a training's batches, do not count. Names that the script imports with `*` are
    looked up in the module's file in the same directory.
    """
    names = set(_names_in(path))
    return names >= _PAIR or _WHOLE in names


def _names_in(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[str]:
    if path in seen or not path.is_file():
        return
    body = ast.parse(path.read_bytes()).body
    yield from _names(body)
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*" and statement.module:
            beside = path.parent.joinpath(*statement.module.split(".")).with_suffix(".py")
            yield from _names_in(beside, seen | {path})


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name) for alias in statement.names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from _targets(targets)
        elif isinstance(statement, ast.If) and not _is_main(statement.test):
            yield from _names([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            handled = [inner for handler in statement.handlers for inner in handler.body]
            yield from _names([*statement.body, *handled, *statement.orelse, *statement.finalbody])
        elif isinstance(statement, ast.With):
            yield from _names(statement.body)


def _targets(targets: Iterable[ast.expr]) -> Iterator[str]:
    for target in targets:
        named = (node for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        yield from (node.id for node in named)


def _is_main(test: ast.expr) -> bool:
    """Return whether this is `__name__ == "__main__"`, which is false while autocompile looks for a workload."""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))
