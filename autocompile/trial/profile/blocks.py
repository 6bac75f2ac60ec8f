"""Find repeated blocks: submodules of equal structure, which can share one compiled program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torch import nn

from autocompile.core.profile import RepeatedBlock


def repeated_blocks(model: object) -> tuple[RepeatedBlock, ...]:
    """Return the outermost groups of at least two siblings that have children and an equal structure.

    Siblings are the children of one module, also those in its `nn.ModuleList`s. A block that is registered under
    several names counts once. The inside of a repeated block is not searched again. A function has no blocks.
    """
    if not isinstance(model, nn.Module):
        return ()
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    known: set[int] = set()
    _collect(model, "", groups, known)
    return tuple(
        RepeatedBlock(class_name=class_name, paths=tuple(paths))
        for (_parent, class_name, _structure), paths in groups.items()
        if len(paths) > 1
    )


def _collect(module: nn.Module, path: str, groups: dict[tuple[str, str, str], list[str]], known: set[int]) -> None:
    children = []
    for child_path, child in _called_children(module, path):
        if id(child) not in known:
            known.add(id(child))
            children.append((child_path, child))
    structures = {name: _structure(child) for name, child in children}
    for child_path, child in children:
        repeated = sum(other == structures[child_path] for other in structures.values()) > 1
        if repeated and any(True for _ in child.children()):
            groups[(path, type(child).__name__, structures[child_path])].append(child_path)
        else:
            _collect(child, child_path, groups, known)


def _called_children(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield the children that can be called, each with its path, also those in an `nn.ModuleList` or the like."""
    for name, child in module.named_children():
        child_path = f"{path}.{name}" if path else name
        if getattr(type(child), "forward", None) is nn.Module.forward:
            yield from _called_children(child, child_path)
        else:
            yield child_path, child


def _structure(module: nn.Module) -> str:
    parameters = [(name, tuple(p.shape), str(p.dtype)) for name, p in module.named_parameters()]
    classes = [(name, type(child).__qualname__) for name, child in module.named_modules()]
    return f"{module.training}{classes}{parameters}"
