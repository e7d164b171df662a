"""Reads from the sources which warnings and errors Karrot logs."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1] / "karrot"

_LEVELS = {"warning": "warning", "error": "error", "exception": "error", "critical": "critical"}
_LOGGERS = {"_log", "logging", "structlog"}


class LogRecord(NamedTuple):
    """A call that logs a warning or an error.

    ``text`` and ``code`` are ``None`` if they are not constants. ``values`` are the expressions of the call's values by
    their keys, and ``place`` is the file and the line of the call. ``has_arguments`` tells whether values are put into
    the text.
    """

    level: str
    text: str | None
    code: str | None
    values: dict[str, str]
    place: str
    has_arguments: bool


def log_records() -> Iterator[LogRecord]:
    """Every warning and error of the package, by file and line."""
    for path in sorted(PACKAGE.rglob("*.py")):
        calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        for call in sorted(calls, key=lambda each: each.lineno):
            function = call.func
            if isinstance(function, ast.Attribute) and function.attr in _LEVELS and _root(function.value) in _LOGGERS:
                yield _record(call, function.attr, f"{path.relative_to(PACKAGE.parent)}:{call.lineno}")


def _root(node: ast.expr) -> str:
    """The first name of an expression such as ``structlog.get_logger(__name__)``."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _record(call: ast.Call, method: str, place: str) -> LogRecord:
    values = {each.arg: each.value for each in call.keywords if each.arg is not None}
    extra = values.pop("extra", None)
    if isinstance(extra, ast.Dict):
        pairs = zip(map(_constant, extra.keys), extra.values, strict=True)
        values |= {key: value for key, value in pairs if key is not None}
    return LogRecord(
        level=_LEVELS[method],
        text=_constant(call.args[0]) if call.args else None,
        code=_constant(values.get("code")),
        values={name: ast.unparse(value) for name, value in values.items()},
        place=place,
        has_arguments=len(call.args) > 1,
    )


def _constant(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
