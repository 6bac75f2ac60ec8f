"""What a watched script trains, and how: recorded well enough to be done again."""
