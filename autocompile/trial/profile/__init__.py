"""What bounds a workload, and where: figures, then what they mean."""
