"""Names in a question: each is bound to it, and none is a word of it."""

from collections.abc import Mapping

__all__ = ["named"]


def named(
    cluster: str | None, group: str | None, parts: Mapping[str, str | int] | None = None
) -> tuple[str, dict[str, object]]:
    """The conditions on what was named, and the values to bind to them. A name is never a word of the query."""
    asked = {"cluster": cluster, "consumer": group, **(parts or {})}
    given: dict[str, object] = {column: value for column, value in asked.items() if value is not None}
    for value in given.values():
        str(value).encode()  # bytes that are no UTF-8 come from a command line as surrogates: no name of a group
    return "".join(f" AND {column} = ${column}" for column in given), given
