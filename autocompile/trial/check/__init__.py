"""Checks of correctness: outputs against the float64 reference, repeatability, and sizes that no sample has."""
