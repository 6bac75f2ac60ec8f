"""The identity of a model: facts by name, none of which depends on where a class was defined."""
