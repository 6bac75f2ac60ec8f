"""What Dynamo and Inductor count in a process."""

from __future__ import annotations

from autocompile.core.outcome import Counters


def counters() -> Counters:
    """As of now."""
    from torch._dynamo.utils import counters as counted  # noqa: PLC0415  only what compiles may import the compiler

    inductor, ahead = counted["inductor"], counted["aot_autograd"]
    return Counters(
        graphs=counted["stats"]["unique_graphs"],
        graph_breaks=sum(counted["graph_break"].values()),
        recompiles=sum(counted["recompiles"].values()),
        cudagraph_skips=inductor["cudagraph_skips"],
        cache_hits=inductor["fxgraph_cache_hit"] + ahead["autograd_cache_hit"],
        cache_misses=inductor["fxgraph_cache_miss"] + ahead["autograd_cache_miss"],
    )
