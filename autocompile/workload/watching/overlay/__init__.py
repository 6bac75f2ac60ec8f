"""Files as a watched script sees them: the user's files, overlaid with what the script wrote."""
