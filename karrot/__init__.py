"""Karrot stores Burrow's verdicts on Kafka consumer groups and passes them on to other systems."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("karrot-burrow")
