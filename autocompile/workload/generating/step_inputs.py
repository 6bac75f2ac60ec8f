"""The arguments with which transformers' `generate` calls any model at each decode step."""

from autocompile.workload.generating.cache_argument import CACHE_NAMES

STEP_INPUTS = frozenset(
    {"input_ids", "attention_mask", "position_ids", *CACHE_NAMES, "use_cache", "return_dict", "cache_position"}
)
