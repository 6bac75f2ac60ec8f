"""Floor 4: formats a recommendation as text and as HTML."""
