"""What packs: the winner as production loads it, and that measured as it is loaded."""
