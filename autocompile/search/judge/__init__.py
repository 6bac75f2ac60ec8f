"""Who is best, by how much, and whether one can say so."""
