"""Floor 3: the files of a recommendation, and loading them in production. No optuna."""
