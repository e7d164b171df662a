"""Karrot stores Burrow's verdicts on Kafka consumer groups and passes them on to other systems."""

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """Look up ``__version__`` when it is read. At every start, this would delay the handler of `karrot.__main__`."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import version  # noqa: PLC0415 - the import takes longer than the start of Python

    return version("karrot-burrow")
