"""A function of a script, the calls of which are what is tuned."""
