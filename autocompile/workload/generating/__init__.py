"""Text that a transformers model generates: its decode step as a model of its own, and the caches beneath."""
