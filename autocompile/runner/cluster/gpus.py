"""Agents for the other GPUs of this machine: one process for each GPU, which sees only that GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping

from autocompile.core.errors import InvalidValue
from autocompile.gpus import VISIBLE, nvidia_gpus
from autocompile.runner.cluster.agent import here
from autocompile.runner.cluster.link import Process
from autocompile.runner.cluster.messages import Here


class GpuEngine:
    """The GPUs that this process may use, except the first, which home uses. Raises InvalidValue if there is no GPU."""

    name = "gpu"

    def __init__(self, where: str = "workers") -> None:
        gpus, _driver = nvidia_gpus()
        visible = os.environ.get(VISIBLE)
        self._names = [gpu.uuid for gpu in gpus] if visible is None else [n for n in visible.split(",") if n.strip()]
        if not gpus or not self._names:
            raise InvalidValue("there is no NVIDIA GPU here", where=where, remedy="give a number of workers, like 2")

    def workers(self) -> Mapping[str, Here | str]:
        return {f"GPU {name.strip()}": here(name) for name in self._names[1:]}

    def link(self, worker: str) -> Process:
        return Process({VISIBLE: worker.removeprefix("GPU ")})

    def close(self) -> None:
        """Do nothing: each link ends its own process."""
