"""Eager: the model as it is, except for what all runtimes share: precision, memory format, threads, batch."""
