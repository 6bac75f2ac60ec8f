"""Floor 6: one small file per command."""
