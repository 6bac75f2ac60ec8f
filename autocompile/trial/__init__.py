"""Floor 3, measuring: the code that runs inside a child process. It does not import optuna."""
