"""What Dynamo and Inductor count in a process."""

from __future__ import annotations

import sys

from autocompile.core.outcome import Counters


def counters() -> Counters:
    """Return the present counts."""
    from torch._dynamo.utils import counters as counted  # noqa: PLC0415  production must not import it

    inductor, ahead = counted["inductor"], counted["aot_autograd"]
    return Counters(
        graphs=counted["stats"]["unique_graphs"],
        graph_breaks=sum(counted["graph_break"].values()),
        recompiles=sum(counted["recompiles"].values()),
        cudagraph_skips=inductor["cudagraph_skips"],
        cache_hits=inductor["fxgraph_cache_hit"] + ahead["autograd_cache_hit"],
        cache_misses=inductor["fxgraph_cache_miss"] + ahead["autograd_cache_miss"],
        captures=_captures(),
    )


def _captures() -> int:
    """Return the number of functions for which this thread has CUDA graphs, recorded or still in warm-up.

    Torch keeps them per device, keyed by the sizes that are numbers in a call (2.11 to 2.13).
    """
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    containers = getattr(trees.local, "tree_manager_containers", {}) if trees else {}
    managers = (container.tree_manager for container in containers.values())
    return sum(len(manager.ids_to_funcs) for manager in managers if manager is not None)
