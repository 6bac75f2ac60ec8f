"""Floor 4: a recommendation as text and as HTML."""
