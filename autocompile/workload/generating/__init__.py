"""Text generation with a transformers model: its decode step as a separate model, and the caches that it uses."""
