"""Put a program's output tensors into the structure that the model returns."""

from __future__ import annotations

import ast
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.program import Program
from autocompile.runtime.structure import missing_class, structure_of

Assemble = Callable[[Sequence[torch.Tensor]], Any]
# The modules whose code fills the libraries' output records when they are constructed.
_FILLED_BY = ("transformers.utils.generic", "diffusers.utils.outputs")
# Methods by which a user's class could run its own code at construction, or store its fields elsewhere.
_RUNS_OR_KEEPS = ("__new__", "__post_init__", "__setattr__", "__setitem__", "__slots__")
# The file name of a constructor that was generated for a dataclass.
_GENERATED = "<string>"


def assembler(program: Program) -> Assemble:
    """Return a function that puts the program's tensors into the structure of its output.

    A record whose class cannot be imported here becomes a dict with the same names.
    """
    missing_class(program.output_spec)  # imports the classes that exist, which registers them with torch
    try:
        spec = pytree.treespec_loads(program.output_spec)
    except NotImplementedError:  # a class that is not registered with torch here
        return _plainly(program)
    fixed = [None if literal is None else ast.literal_eval(literal) for literal in program.outputs]
    is_tensor = [literal is None for literal in program.outputs]
    if spec.is_leaf():
        return lambda tensors: tensors[0]
    is_flat = all(is_tensor) and all(child.is_leaf() for child in spec.children())
    if is_flat and spec.type is tuple:
        return tuple
    if is_flat and spec.type in pytree.SUPPORTED_NODES:
        unflatten, context = pytree.SUPPORTED_NODES[spec.type].unflatten_fn, spec.context
        construct: Assemble = lambda tensors: unflatten(tensors, context)  # noqa: E731  a name for the type
        return _Records(construct) if _is_a_librarys_record(spec.type) else construct

    def assemble(tensors: Sequence[torch.Tensor]) -> Any:
        following: Iterator[torch.Tensor] = iter(tensors)
        leaves = [next(following) if tensor else value for tensor, value in zip(is_tensor, fixed, strict=True)]
        return pytree.tree_unflatten(leaves, spec)

    return assemble


def _plainly(program: Program) -> Assemble:
    structure = structure_of(program.output_spec)
    literals = [None if literal is None else ast.literal_eval(literal) for literal in program.outputs]
    is_tensor = [literal is None for literal in program.outputs]

    def assemble(tensors: Sequence[torch.Tensor]) -> Any:
        following = iter(tensors)
        leaves = (next(following) if tensor else value for tensor, value in zip(is_tensor, literals, strict=True))
        return structure.filled(leaves)

    return assemble


class _Records:
    """Construct records without their constructor, which would iterate over all fields several times.

    The first record is constructed as usual and shows how the constructor fills it. Later records are filled directly,
    if that gives the same result.
    """

    def __init__(self, construct: Assemble) -> None:
        self._construct = construct
        self._fill: Assemble | None = None

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        if self._fill is not None:
            return self._fill(tensors)
        made = self._construct(tensors)
        if len(set(map(id, tensors))) < len(tensors):
            return made  # a tensor that occurs twice could be in either field
        self._fill = _filler(made, tensors) or self._construct
        return made


def _filler(made: Any, tensors: Sequence[torch.Tensor]) -> Assemble | None:
    """Return a function that makes a record like `made` from other tensors.

    Return None if the record holds anything other than these tensors and None.
    """
    kind, known = type(made), {id(None): len(tensors), **{id(tensor): i for i, tensor in enumerate(tensors)}}
    attributes, items = vars(made), dict(OrderedDict.items(made))
    if not all(id(value) in known for value in (*attributes.values(), *items.values())):
        return None
    to_attributes = [(name, known[id(value)]) for name, value in attributes.items()]
    to_items = [(name, known[id(value)]) for name, value in items.items()]

    def fill(tensors: Sequence[torch.Tensor]) -> Any:
        held = (*tensors, None)
        record = OrderedDict.__new__(kind)
        attributes = vars(record)
        for name, i in to_attributes:
            attributes[name] = held[i]
        for name, i in to_items:
            OrderedDict.__setitem__(record, name, held[i])
        return record

    return fill if _contents(fill(tensors)) == _contents(made) else None


def _contents(record: Any) -> list[list[tuple[str, int]]]:
    return [[(name, id(value)) for name, value in part] for part in (vars(record).items(), OrderedDict.items(record))]


def _is_a_librarys_record(kind: type) -> bool:
    """Return whether constructing the class runs only the library's own code, and its fields are stored openly."""
    if "__dataclass_fields__" not in vars(kind) or not issubclass(kind, OrderedDict):
        return False
    if getattr(getattr(kind, "__post_init__", None), "__module__", "") not in _FILLED_BY:
        return False
    users = [base for base in kind.__mro__ if base.__module__ not in _FILLED_BY and base not in OrderedDict.__mro__]
    if any(name in vars(base) for base in users for name in _RUNS_OR_KEEPS):
        return False
    is_generated = inspect.unwrap(kind.__init__).__code__.co_filename == _GENERATED
    described = (inspect.getattr_static(kind, name, None) for name in vars(kind)["__dataclass_fields__"])
    return is_generated and not any(hasattr(one, "__set__") for one in described)
