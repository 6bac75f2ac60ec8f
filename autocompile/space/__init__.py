"""Floor 2: what can be varied, and what a choice of values means. No torch."""
