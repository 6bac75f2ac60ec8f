"""Record how a watched script trains a module, in enough detail to repeat it."""
