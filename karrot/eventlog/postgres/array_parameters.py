"""Packs whole columns as binary arrays of PostgreSQL, so that one statement writes or finds many rows.

psycopg packs a list value by value, which costs more than the rest of a commit. The format is PostgreSQL's own
(``array_send`` in ``src/backend/utils/adt/arrayfuncs.c``): a header, then the length and the bytes of each value.
"""

import struct
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, Final

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types import TypeInfo

_HEADER: Final = struct.Struct(">iiIii")
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_INT8: Final = TypeInfo("int8", 20, 1016)
_BYTEA: Final = TypeInfo("bytea", 17, 1001)


class Integers(list[int | None]):
    """A column of ``bigint``. A value beyond 64 bits raises `OverflowError`."""


class Texts(list[bytes | None]):
    """A column of ``bytea``. Names are in UTF-8, because PostgreSQL's ``text`` cannot hold NUL."""


class _ArrayDumper(Dumper):
    format = Format.BINARY


class IntegersDumper(_ArrayDumper):
    """Packs `Integers`."""

    oid = _INT8.array_oid

    def dump(self, obj: Integers) -> Buffer:
        """The column as a binary array."""
        try:
            if None in obj:
                packed = b"".join(_NULL if each is None else struct.pack(">iq", 8, each) for each in obj)
            else:
                packed = struct.pack(">" + "iq" * len(obj), *chain.from_iterable(zip(repeat(8), obj, strict=False)))
        except struct.error as error:
            raise OverflowError(f"a number does not fit into 64 bits: {error}") from error
        return _header(_INT8, obj) + packed


class TextsDumper(_ArrayDumper):
    """Packs `Texts`."""

    oid = _BYTEA.array_oid

    def dump(self, obj: Texts) -> Buffer:
        """The column as a binary array."""
        pieces = chain.from_iterable((_NULL,) if each is None else (_LENGTH.pack(len(each)), each) for each in obj)
        return _header(_BYTEA, obj) + b"".join(pieces)


def register(connection: psycopg.Connection[Any]) -> None:
    """Let a connection take `Integers` and `Texts` as parameters."""
    connection.adapters.register_dumper(Integers, IntegersDumper)
    connection.adapters.register_dumper(Texts, TextsDumper)


def _header(kind: TypeInfo, values: Sequence[object]) -> bytes:
    if not values:
        return _HEADER.pack(0, 0, kind.oid, 0, 1)[:12]
    return _HEADER.pack(1, int(None in values), kind.oid, len(values), 1)
