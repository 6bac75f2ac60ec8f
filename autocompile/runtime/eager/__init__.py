"""The model as it is, but for what all runtimes share: precision, memory format, threads, batch."""
