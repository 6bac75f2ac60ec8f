"""Libraries with a copy of libstdc++ of their own are refused, because they crash next to torch's."""

import subprocess

import pytest

from autocompile.runtime.aot.unpack import check_linked
from autocompile.runtime.base import NotPackable

SOURCE = """
#include <string>
extern "C" int length(const char* words) { return std::string(words).append("...").size(); }
"""


def built(directory, *flags):
    source, library = directory / "length.cpp", directory / "length.so"
    source.write_text(SOURCE)
    subprocess.run(["g++", "-shared", "-fPIC", *flags, str(source), "-o", str(library)], check=True)
    return library


def test_a_library_that_shares_libstdcxx_is_accepted(tmp_path):
    check_linked(built(tmp_path))


def test_a_library_with_its_own_libstdcxx_is_refused(tmp_path):
    with pytest.raises(NotPackable, match="set CXX to a compiler that links") as refused:
        check_linked(built(tmp_path, "-static-libstdc++"))
    assert refused.value.cause == "model"
