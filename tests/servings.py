"""How artifacts of `torch.compile`'s plans can serve, the best first."""

from autocompile.core.serving import AS_IT_IS, Serving

AHEAD = Serving("aot", "load")
CARRIED = Serving("inductor", "cache")
COMPILING = Serving("inductor", "compile")

__all__ = ["AHEAD", "AS_IT_IS", "CARRIED", "COMPILING"]
