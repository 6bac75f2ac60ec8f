"""The verdict: which candidate is best, by how much, and whether the measurements support it."""
