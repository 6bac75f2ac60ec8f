"""Which model it is: facts by name, none of which depends on where a class was defined."""
