"""Pack the winner as production loads it, and measure the packed artifact as it is loaded."""
