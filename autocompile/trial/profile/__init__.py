"""Profile a workload: measure it, then find out what bounds it and where."""
