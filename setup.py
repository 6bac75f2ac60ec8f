"""The packages, found; `strategies/` lies beside them and is installed as one of them."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["autocompile", "autocompile.*"]), "autocompile.strategies"])
