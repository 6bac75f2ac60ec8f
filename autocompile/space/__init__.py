"""Floor 2: what can be varied, and what chosen values mean for a plan. No torch."""
