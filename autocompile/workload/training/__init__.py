"""Training as a unit of work: loss, gradients, optimizer."""
