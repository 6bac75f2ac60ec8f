"""Find repeated blocks: submodules of equal structure, which can share one compiled program."""

from __future__ import annotations

from collections import defaultdict

from torch import nn

from autocompile.core.profile import RepeatedBlock


def repeated_blocks(model: object) -> tuple[RepeatedBlock, ...]:
    """Return the outermost groups of at least two siblings that have children and an equal structure.

    A block that is registered under several names counts once. The inside of a repeated block is not searched again.
    A function has no blocks.
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
    children = [(name, child) for name, child in module.named_children() if id(child) not in known]
    known.update(id(child) for _name, child in children)
    structures = {name: _structure(child) for name, child in children}
    for name, child in children:
        child_path = f"{path}.{name}" if path else name
        repeated = sum(other == structures[name] for other in structures.values()) > 1
        if repeated and any(True for _ in child.children()):
            groups[(path, type(child).__name__, structures[name])].append(child_path)
        else:
            _collect(child, child_path, groups, known)


def _structure(module: nn.Module) -> str:
    parameters = [(name, tuple(p.shape), str(p.dtype)) for name, p in module.named_parameters()]
    classes = [(name, type(child).__qualname__) for name, child in module.named_modules()]
    return f"{module.training}{classes}{parameters}"
