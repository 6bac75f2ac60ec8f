"""A program that AOTInductor compiled ahead."""
