"""Libraries with a copy of libstdc++ of their own are refused, because they crash next to torch's."""

import subprocess

from autocompile.runtime.aot.linking import linking_problem

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
    assert linking_problem(built(tmp_path)) == ""


def test_a_library_with_its_own_libstdcxx_is_refused(tmp_path):
    assert "set CXX to a compiler that links" in linking_problem(built(tmp_path, "-static-libstdc++"))
