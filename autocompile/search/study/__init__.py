"""The study in Optuna's storage, which several runs may share: what is kept there, and who is at work on it."""
