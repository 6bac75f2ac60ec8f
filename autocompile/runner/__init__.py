"""Floor 3, the parent's half of a trial: starts children, limits them, classifies how they ended. No torch."""
