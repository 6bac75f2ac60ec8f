"""The option for a run's workers: a number, `gpu`, or the address of a cluster's scheduler."""

from __future__ import annotations

import re
from typing import Literal

from autocompile.core.errors import InvalidValue
from autocompile.core.serde import Record
from autocompile.host import usable_cores

Engine = Literal["", "gpu", "dask", "ray"]


class Workers(Record, frozen=True):
    """The workers of a run.

    `here`: how many candidates are compiled at the same time on this machine. `engine`: the system that starts agents
    on other machines or for other GPUs. `address`: the address of its scheduler. `apart`: each worker counts as a
    separate machine, even if several share one; their work then disturbs each other's timings.
    """

    here: int = 1
    engine: Engine = ""
    address: str = ""
    apart: bool = False


def parse_workers(text: str | int, *, where: str = "workers") -> Workers:
    """Parse workers given as `"4"`, 4, `"gpu"`, `"dask://host:8786"` or `"ray://host:10001"`.

    Raises InvalidValue if the text cannot be parsed, or the number is below 1 or above the number of cores here.
    """
    if isinstance(text, str) and text.strip() == "gpu":
        return Workers(engine="gpu")
    cluster = re.fullmatch(r"\s*(dask|ray)://([^\s/]+:\d+)/?\s*", text) if isinstance(text, str) else None
    if cluster:
        return Workers(engine="dask" if cluster[1] == "dask" else "ray", address=cluster[2])
    return Workers(here=_number(text, where))


def _number(text: str | int, where: str) -> int:
    is_number = isinstance(text, int) and not isinstance(text, bool)
    if not is_number and not (isinstance(text, str) and text.strip().isascii() and text.strip().isdigit()):
        remedy = "give a number like 2, or gpu, or dask://host:8786 or ray://host:10001"
        raise InvalidValue(f"{text!r} is not a number of workers", where=where, remedy=remedy)
    workers, cores = int(text), usable_cores()
    if workers < 1:
        raise InvalidValue(f"{workers} workers compile nothing", where=where, remedy="give 1 or more")
    if workers > cores:
        plural = "s" * (cores != 1)
        raise InvalidValue(
            f"{workers} workers are more than the {cores} core{plural} that this process may use",
            where=where,
            remedy=f"give at most {cores}",
        )
    return workers
