"""Rules of this repository that no linter checks: the sizes of its parts, and the separation of the runtimes."""

import ast
import tomllib
from pathlib import Path

from places import REPOSITORY

import autocompile
from autocompile.core.plan import EAGER
from autocompile.runtime.catalogue import kinds

HOUSE = Path(autocompile.__file__).parent
FILES = sorted(path for path in HOUSE.rglob("*.py") if "strategies" not in path.relative_to(HOUSE).parts)
ROOMS = tuple(f"autocompile.runtime.{kind.name}" for kind in kinds())
# Exceptions: one module must name the baseline's runtime, `load` has an option "eager", and Dynamo has a backend
# "eager".
NO_RUNTIMES = {
    (file, EAGER)
    for file in (
        "core/plan.py",
        "artifact/entry.py",
        "artifact/load.py",
        "artifact/options.py",
        "trial/profile/graphbreaks.py",
    )
}


def within(path):
    return str(path.relative_to(HOUSE))


def names_of_runtimes(path):
    """Texts that are a runtime's name, and imports from its room, with their lines."""
    names = {kind.name for kind in kinds()}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and node.value in names and (within(path), node.value) not in NO_RUNTIMES:
            yield f"{within(path)}:{node.lineno} {node.value!r}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(ROOMS):
            yield f"{within(path)}:{node.lineno} {node.module}"


def test_no_runtime_is_named_outside_of_its_room():
    outside = [path for path in FILES if not within(path).startswith("runtime/")]
    assert [place for path in outside for place in names_of_runtimes(path)] == []


def test_within_the_room_only_the_catalogue_names_them_all():
    own = [path for path in FILES if within(path).startswith("runtime/") and len(path.relative_to(HOUSE).parts) == 2]
    places = [place for path in own for place in names_of_runtimes(path)]
    assert [place for place in places if not place.startswith("runtime/catalogue.py")] == []


def test_every_room_of_a_runtime_knows_nothing_of_the_others():
    rooms = {f"autocompile.runtime.{path.parent.name}" for path in (HOUSE / "runtime").glob("*/__init__.py")}
    contracts = tomllib.loads((HOUSE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (named,) = (contract["modules"] for contract in contracts if contract["type"] == "independence")
    assert rooms == set(named) == set(ROOMS)


def test_files_hold_one_idea_each():
    lengths = {within(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def lines_of(function):
    """Without the docstring, which lists each parameter of a public function."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    return function.end_lineno - function.lineno + 1 - has_docstring * (first.end_lineno - first.lineno + 1)


def test_functions_are_small():
    lengths = {
        f"{within(path)} {node.name}": lines_of(node)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_no_two_test_files_have_one_name():
    """Pytest imports them by name, and takes the one for the other where all of them run."""
    names = [path.name for path in (REPOSITORY / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted({name for name in names if names.count(name) > 1}) in ([], ["__init__.py"])
