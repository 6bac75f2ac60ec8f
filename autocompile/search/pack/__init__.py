"""Pack the winner, and measure the packed artifact."""
