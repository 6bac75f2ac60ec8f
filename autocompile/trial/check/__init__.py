"""What checks: outputs against the float64 reference, repeatability, sizes and samples that nobody gave."""
