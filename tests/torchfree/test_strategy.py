import ast

import pytest
from places import REPOSITORY

from autocompile.core.errors import InvalidStrategy
from autocompile.search.strategy import load_strategy, shipped_strategies


def test_the_presets_that_ship():
    assert shipped_strategies() == ("balanced", "quick", "thorough")


@pytest.mark.parametrize("name", ["balanced", "quick", "thorough"])
def test_every_preset_loads_and_is_identified(name):
    strategy = load_strategy(name)
    assert strategy.name == name
    assert strategy.digest.startswith("sha256:")
    assert strategy.dimensions
    assert strategy.search.sampler == ("tpe" if name == "thorough" else "policy")


def presets_of_studies():
    """The TOML files of studies, and the texts in their scripts that are written to one."""
    for path in sorted((REPOSITORY / "studies").glob("*/*.toml")):
        yield pytest.param(path.read_text(), id=f"{path.parent.name}/{path.name}")
    for path in sorted((REPOSITORY / "studies").glob("*/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n[dimensions]\n" in node.value:
                yield pytest.param(node.value, id=f"{path.parent.name}/{path.name}:{node.lineno}")


@pytest.mark.parametrize("text", list(presets_of_studies()))
def test_what_studies_search_over_is_known(text, tmp_path):
    (tmp_path / "study.toml").write_text(text)
    assert load_strategy(str(tmp_path / "study.toml")).dimensions


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[serch]\n", r"unknown key 'serch'; did you mean 'search'\?"),
        ("[search]\nmax_trails = 3\n", r"\[search\]: unknown key 'max_trails'; did you mean 'max_trials'\?"),
        ("[dimensions]\nthread = []\n", r"unknown dimension 'thread'; did you mean 'threads'\?"),
        ("[[seeds]]\nruntme = 'inductor'\n", r"\[\[seeds\]\]: unknown dimension 'runtme'; did you mean 'runtime'\?"),
        ("[search]\nmax_trials = 'many'\n", r"max_trials"),
        ("[search]\nsampler = 'annealing'\n", r"annealing"),
        ("[search]\nmax_trials = 0\n", r"max_trials must be 1 or more"),
        ("[stages]\nfinals = 1.5\n", r"finals = 1.5 is not a share"),
        ("search = 3\n", r"is a int, not a table"),
        ("not toml", r"is not TOML"),
    ],
)
def test_a_preset_with_a_fault_names_it_and_the_nearest(tmp_path, text, said):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InvalidStrategy, match=said):
        load_strategy(str(path))


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(InvalidStrategy, match=r"no strategy 'balancd'; did you mean 'balanced'\?"):
        load_strategy("balancd")


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(InvalidStrategy, match="No such file"):
        load_strategy(str(tmp_path / "none.toml"))


def test_a_users_own_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[search]\nsampler = "random"\n[dimensions]\nruntime = []\n')
    strategy = load_strategy(str(path))
    assert (strategy.name, strategy.search.sampler, strategy.dimensions) == ("mine", "random", {"runtime": ()})
