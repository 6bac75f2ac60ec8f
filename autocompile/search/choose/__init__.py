"""What to try next, and what need not be tried."""
