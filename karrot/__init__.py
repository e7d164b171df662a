"""Karrot stores Burrow's verdicts on Kafka consumer groups and passes them on to other systems."""

from importlib.metadata import version

__all__ = ["NAME", "__version__"]

NAME = "karrot-burrow"
"""The name of the distribution. On the package index, ``karrot`` is another project."""

__version__ = version(NAME)
