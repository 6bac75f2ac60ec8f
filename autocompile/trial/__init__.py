"""Floor 3, the measuring wing: what runs inside a child process. No optuna."""
