"""`torch.compile` with Inductor, in the process itself."""
