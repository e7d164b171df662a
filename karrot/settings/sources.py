"""Reads settings as strings, by name, from a TOML file, the environment and the command line."""

import os
import re
import stat
import tomllib
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PREFIX = "KARROT_"
_OF_COMMANDS = {"KARROT_CONFIG", "KARROT_URL"}
"""The variables with the defaults of the options ``--config`` and ``--karrot``. They are no settings."""

DEFAULT = "default"
"""The source of a value that the user has not set."""

_FILE = "_FILE"
_SECRET_BYTES = 64 * 1024
_KUBERNETES = re.compile(r"KARROT_(PORT|PORT_.*|SERVICE_.*|BURROW_PORT.*|BURROW_SERVICE_.*)", re.DOTALL)
"""Kubernetes sets these variables in pods for the Services ``karrot`` and ``karrot-burrow``. Karrot ignores them."""


class SourceError(ValueError):
    """A source of settings, or a file that a value names, cannot be used. The message is for the user."""


class Given(NamedTuple):
    """A value as the user wrote it, under the name ``label``. If ``file`` is true, the value is the path of a file."""

    label: str
    text: str
    file: bool = False

    def source(self, name: str) -> str:
        """The source of the setting ``name``, such as ``environment`` or ``log in karrot.toml``."""
        if self.label == name:
            return "environment"
        return f"{self.label} in the environment" if re.fullmatch(r"KARROT_\w+", self.label) else self.label


class File(NamedTuple):
    """The values of a configuration file. ``open_mode`` is the mode, such as ``0644``, of a world-readable file."""

    given: dict[str, Given]
    open_mode: str | None


def from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """The ``KARROT_*`` variables, without the defaults of options and the variables that Kubernetes injects."""
    ours = {name: text for name, text in environ.items() if name.startswith(PREFIX) and name not in _OF_COMMANDS}
    return {name: Given(name, text) for name, text in ours.items() if not _KUBERNETES.fullmatch(name)}


def from_command_line(overrides: Mapping[str, str]) -> dict[str, Given]:
    """The values of command-line options. The keys of ``overrides`` are attribute names."""
    return {PREFIX + name.upper(): Given(f"--{name.replace('_', '-')}", text) for name, text in overrides.items()}


def from_file(path: Path) -> File:
    """Read the flat keys of a TOML file, or the keys of its table ``[karrot]``. Raises `SourceError`."""
    try:
        with path.open("rb") as file:
            document, mode = tomllib.load(file), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise SourceError(f"the configuration file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SourceError(f"the configuration file {path} is not TOML: {error}") from error
    table = _table(document, path)
    given: dict[str, Given] = {}
    for key, value in table.items():
        if key.upper().startswith(PREFIX):
            written = key.upper().removeprefix(PREFIX).lower()
            raise SourceError(f"{key} in {path}: names in a file are without {PREFIX}; write {written}")
        given[PREFIX + key.upper()] = Given(f"{key} in {path}", _text(value, key, path))
    return File(given, f"{mode:04o}" if mode & stat.S_IROTH else None)


def merged(layers: Iterable[Mapping[str, Given]], *, plain: Container[str], secret: Container[str]) -> dict[str, Given]:
    """Merge the layers. A later layer replaces the values of an earlier one.

    ``X_FILE`` names the file with the value of X, except if X or X_FILE is in ``plain``. An empty string means not set,
    except for names in ``secret``, which must not be empty. Raises `SourceError` if one layer has both X and X_FILE.
    """
    result: dict[str, Given] = {}
    for layer in layers:
        values = _with_files(layer, plain)
        result |= {name: given for name, given in values.items() if given.text or name in secret}
    return result


def secret_text(given: Given) -> str:
    """Return a secret, or read a file's secret without the last line end. Raises `SourceError` for a bad secret."""
    text = _read(given) if given.file else given.text
    if not text and given.file:
        raise SourceError(f"{given.label} names {given.text!r}, which is empty")
    if not text:
        raise SourceError(f"{given.label} is set but empty: give it a value or remove it")
    return text


def _with_files(layer: Mapping[str, Given], plain: Container[str]) -> dict[str, Given]:
    result: dict[str, Given] = {}
    for name, given in layer.items():
        target = name.removesuffix(_FILE)
        by_file = target != name and target not in plain and name not in plain
        if by_file and target in layer:
            raise SourceError(f"{layer[target].label} and {given.label} are both set: keep one")
        result[target if by_file else name] = given._replace(file=by_file)
    return result


def _table(document: dict[str, Any], path: Path) -> dict[str, Any]:
    table = document.get("karrot", document)
    for key, value in document.items():
        if isinstance(value, dict) and value is not table:
            raise _not_read(key, value, path)
    if not isinstance(table, dict) or (table is not document and len(document) > 1):
        raise SourceError(f"{path} must hold either flat keys or one [karrot] table")
    return table


def _not_read(key: str, table: dict[str, Any], path: Path) -> SourceError:
    setting = f"{key}_{next(iter(table), '...')}"
    return SourceError(f"[{key}] in {path}: tables other than [karrot] are not read; write {setting} = ...")


def _text(value: object, key: str, path: Path) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(item, str) and "," not in item for item in value):
            return ",".join(value)
        case dict():
            raise _not_read(key, value, path)
        case _:
            raise SourceError(f"{key} in {path} must be a text, a number, true or false, or a list of texts")


def _read(given: Given) -> str:
    try:
        with Path(given.text).open("rb") as file:
            content = file.read(_SECRET_BYTES + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SourceError(f"{given.label} names {given.text!r}, which cannot be read: {reason}") from error
    if len(content) > _SECRET_BYTES:
        raise SourceError(f"{given.label} names {given.text!r}, which is larger than {_SECRET_BYTES} bytes")
    return text.removesuffix("\n").removesuffix("\r")
