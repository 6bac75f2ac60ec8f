"""Messages on loading if a library is missing or has another version, or if the argument is not a model."""

import pytest

from autocompile.artifact.machine import of_the_library
from autocompile.artifact.options import check_model
from autocompile.core.errors import UsageError
from autocompile.core.identity import Identity
from autocompile.core.manifest import MANIFEST_VERSION, Manifest, Requirements
from autocompile.core.plan import Plan
from autocompile.core.serving import AS_IT_IS, Serving
from autocompile.runtime.kind import Kind


class Library(Kind):
    name, meaning, implementation, library, extra = "own", "of a test", "nowhere", "its-library", "own"

    def __init__(self, installed):
        self.installed = installed

    def version(self):
        return self.installed


class Bare(Kind):
    name, meaning, implementation = "bare", "of a test", "nowhere"


def needing(library):
    return Requirements("2.13.0", "x86_64", (), "", library=library)


@pytest.mark.parametrize(
    ("installed", "fault", "remedy"),
    [
        ("", "packed with its-library 2.1 for avx512, which is not installed here", "pip install its-library==2.1"),
        ("2.0 for avx512", "packed with its-library 2.1 for avx512, and this is 2.0 for avx512",
         "pip install its-library==2.1"),
        ("2.1 for avx2", "packed with its-library 2.1 for avx512, and this is 2.1 for avx2", ""),
        ("2.1 for avx512", "", ""),
    ],
)  # fmt: skip
def test_the_command_names_the_version_that_packed_it(installed, fault, remedy):
    assert of_the_library(needing("2.1 for avx512"), Library(installed), "cpu") == (fault, remedy)


def test_a_runtime_without_a_library_has_nothing_to_install():
    assert of_the_library(needing(""), Bare(), "cpu") == ("", "")
    assert of_the_library(needing("1"), Bare(), "cpu") == ("packed with bare 1, and this is none", "")


def manifest_of(serving):
    return Manifest(MANIFEST_VERSION, "own", Plan(), "cpu", Identity(), serving, (), needing(""))


@pytest.mark.parametrize(
    ("model", "serving", "said"),
    [
        (
            None,
            AS_IT_IS,
            "load: the model is missing; call load(path, model): the artifact does not contain",
        ),
        ("net", AS_IT_IS, "load: a str is not callable; give the model that was tuned"),
        ("net", Serving("own", "load"), "load: a str is not callable; give the model that was tuned, or no model"),
    ],
)
def test_what_is_no_model_is_refused_with_what_to_give(model, serving, said):
    with pytest.raises(UsageError) as refused:
        check_model(manifest_of(serving), model)
    assert str(refused.value).startswith(said)
    assert ("or none" in str(refused.value)) == said.endswith("or none")


def test_what_holds_its_weights_needs_no_model():
    check_model(manifest_of(Serving("own", "load")), None)
