"""Models and classes arrive in other processes as they are here."""

import pickle
import subprocess
import sys
from contextlib import contextmanager
from enum import Enum
from functools import cache, lru_cache, partial
from pathlib import Path

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from autocompile.workload import pickling
from autocompile.workload.identity.facts import identity_like, identity_of

_TELL = """
import pickle, sys
from autocompile.workload.identity.facts import identity_of
print(identity_of(pickle.load(open(sys.argv[1], "rb"))).digest)
"""


def local():
    """Return an object of a class that is defined here, with classes within it."""

    class Local(nn.Module):
        class Part(nn.Module):
            def forward(self, x):
                return x + 1

        class Way(Enum):
            UP = 1

        def __init__(self):
            super().__init__()
            self.part, self.way = Local.Part(), Local.Way.UP
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return self.part(x) * self.weight if self.way is Local.Way.UP else x

    return Local()


def dumped(value, path: Path) -> Path:
    with path.open("wb") as file:
        pickling.Pickler(file).dump(value)
    return path


def test_a_class_keeps_its_qualified_name(tmp_path):
    code = "import pickle, sys; m = pickle.load(open(sys.argv[1], 'rb'));"
    code += "print(*(type(x).__qualname__ for x in (m, m.part, m.way)), sep='\\n')"
    path = dumped(local(), tmp_path / "model")
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    name = "local.<locals>.Local"
    assert done.stdout.split() == [name, f"{name}.Part", f"{name}.Way"], done.stderr


def test_a_model_of_a_local_class_has_the_same_identity_in_another_process(tmp_path):
    model = local()
    path = dumped(model, tmp_path / "model")
    done = subprocess.run([sys.executable, "-c", _TELL, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == identity_of(model).digest, done.stderr


def part():
    """A function of the same name as an attribute of `Local`, which a call does not run."""


def test_a_global_of_the_same_name_as_an_attribute_is_no_part_of_a_model():
    assert not [name for name in identity_of(local()).code if name == "part"]


@contextmanager
def nothing():
    yield


class Decorated(nn.Module):
    """Its forward is wrapped by a function of a library, which has the name and the module of `forward`."""

    @nothing()
    def forward(self, x):
        return x + 1


def test_a_librarys_wrapper_is_no_code_of_the_users():
    recorded = identity_of(Decorated())
    assert "Decorated.forward" in recorded.code
    assert identity_like(Decorated(), recorded) == recorded


def test_a_class_of_a_module_is_pickled_by_name(tmp_path):
    with dumped(nn.Linear, tmp_path / "class").open("rb") as file:
        assert pickle.load(file) is nn.Linear


def test_implementations_of_attention_can_be_pickled(tmp_path):
    chosen = partial(sdpa_kernel, [SDPBackend.MATH])
    with dumped([chosen, SDPBackend], tmp_path / "chosen").open("rb") as file:
        again, kind = pickle.load(file)
    assert again.args == ([SDPBackend.MATH],)
    assert kind is SDPBackend


def caching():
    """Return a model that calls cached functions, one of which calls itself."""

    @lru_cache(maxsize=7, typed=True)
    def sum_to(number):
        return number + sum_to(number - 1) if number else 0

    class Caching(nn.Module):
        @cache  # noqa: B019
        def offset(self):
            return sum_to(1) + 1

        def forward(self, x):
            return x * sum_to(4) + self.offset()

    return Caching()


def test_cached_functions_travel_with_the_model(tmp_path):
    model = caching()
    path = dumped(model, tmp_path / "model")
    code = "import pickle, sys; m = pickle.load(open(sys.argv[1], 'rb')); print(m(2.0))"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["22.0"], done.stderr
    told = subprocess.run([sys.executable, "-c", _TELL, str(path)], capture_output=True, text=True, check=False)
    assert told.stdout.strip() == identity_of(model).digest, told.stderr
    arrived = pickle.loads(path.read_bytes())
    assert vars(type(arrived))["offset"].cache_parameters() == {"maxsize": None, "typed": False}
