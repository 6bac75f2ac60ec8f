"""Floor 0: records, units, estimates, errors. Imports nothing of ours and no torch."""
