"""Which candidate to try next, and which need not be tried."""
