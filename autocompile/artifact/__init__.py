"""Floor 3: what is kept on disk, and loading it in production. No optuna."""
