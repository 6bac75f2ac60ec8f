"""AOTInductor: programs that torch's compiler compiles ahead of time."""
