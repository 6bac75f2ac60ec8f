"""Floor 3, the deciding wing: Optuna, budget, judgement. No torch."""
