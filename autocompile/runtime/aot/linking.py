"""Find out whether a compiled library works next to torch."""

from __future__ import annotations

from pathlib import Path

_CHUNK_BYTES = 1 << 20
_SHARED = b"libstdc++.so"
_OWN_COPY = (
    "the C++ compiler puts its own copy of libstdc++ into programs, which crash in a process with torch; set CXX to a "
    "compiler that links libstdc++.so"
)


def linking_problem(library: Path) -> str:
    """Return why a library written in C++ cannot be used and what to do, or "".

    With `-static-libstdc++`, which some compilers add by themselves, the library has its own copy of libstdc++. Two
    copies in one process do not work together: `std::regex`, with which a program reads the name of its device, crashed
    (torch 2.11, g++ 13.3).
    """
    end = b""
    with library.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            if _SHARED in end + chunk:
                return ""
            end = chunk[-len(_SHARED) :]
    return _OWN_COPY
