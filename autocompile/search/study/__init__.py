"""The study in Optuna's storage, which several runs may share: its records, and the runs that work on it."""
