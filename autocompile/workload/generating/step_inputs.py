"""What transformers' `generate` calls a model with at each decode step, whatever the model."""

STEP_INPUTS = frozenset(
    {"input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache", "return_dict", "cache_position"}
)
