"""The ways to serve artifacts of `torch.compile` plans, the best first."""

from autocompile.core.serving import AS_IT_IS, Serving

AHEAD = Serving("aot", "load")
CARRIED = Serving("inductor", "cache")
COMPILING = Serving("inductor", "compile")

__all__ = ["AHEAD", "AS_IT_IS", "CARRIED", "COMPILING"]
