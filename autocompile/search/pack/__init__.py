"""The winner, packed, and what was packed, measured."""
