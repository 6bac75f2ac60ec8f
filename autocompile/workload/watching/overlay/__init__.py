"""Files as a watched script sees them: the user's, under its own writes."""
