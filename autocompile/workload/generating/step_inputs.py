"""What transformers' `generate` calls a model with at each decode step, whatever the model."""

from autocompile.workload.generating.cache_argument import CACHE_NAMES

STEP_INPUTS = frozenset(
    {"input_ids", "attention_mask", "position_ids", *CACHE_NAMES, "use_cache", "return_dict", "cache_position"}
)
