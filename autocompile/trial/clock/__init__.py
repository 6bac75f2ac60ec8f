"""What keeps time: paired blocks, intervals, and what disturbed them."""
