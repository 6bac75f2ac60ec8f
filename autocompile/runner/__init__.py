"""Floor 3, the parent's side of a trial: start children, limit them, classify how they ended. Does not import torch."""
