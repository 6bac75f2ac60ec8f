"""Floor 3, the deciding wing: the search with Optuna, the budget and the verdict. No torch."""
