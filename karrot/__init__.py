"""Karrot: Burrow's verdicts on Kafka consumer groups, kept and handed on."""

from importlib.metadata import version

from karrot.installed_distribution import NAME

__all__ = ["__version__"]

__version__ = version(NAME)
