"""Reads big-endian integers from binary columns with built-in expressions that Spark compiles.

``conv(hex(…))`` takes half a microsecond for eight bytes: more than all other work on a record of
``__consumer_offsets``. ``crc32`` takes a fiftieth of that. The checksum of four bytes can be turned back into the
bytes, because no two values have the same checksum. Each bit of a checksum is the XOR of some bits of the value and of
a constant. So the value is the XOR of four numbers from lookup tables, one for each byte of the checksum.
"""

from functools import cache
from typing import Final
from zlib import crc32

from pyspark.sql import Column
from pyspark.sql import functions as F

_BYTE: Final = 0xFF
_BITS: Final = 32


def uint32(data: Column, at: Column) -> Column:
    """Read four bytes from the place ``at``, counted from 1, as a bigint.

    The number is undefined if there are fewer than four bytes. ``data`` must not be NULL.
    """
    # Spark sees that no element of a literal array is NULL, so it does not check for NULL at each step.
    arrays = (F.expr(f"array({','.join(f'{number}L' for number in table)})") for table in tables())
    checksum = F.crc32(F.substr(data, at, F.lit(4)))
    first, second, third, fourth = (
        table[F.shiftright(checksum, 8 * place).bitwiseAND(F.lit(_BYTE))] for place, table in enumerate(arrays)
    )
    return first.bitwiseXOR(second).bitwiseXOR(third).bitwiseXOR(fourth)


def uint16(data: Column, at: Column) -> Column:
    """Read two bytes like `uint32`. At least two more bytes must precede ``at``."""
    return uint32(data, at - F.lit(2)).bitwiseAND(F.lit(0xFFFF))


def int64(data: Column, at: Column) -> Column:
    """Read eight bytes like `uint32`, as a signed number."""
    return F.shiftleft(uint32(data, at), _BITS).bitwiseOR(uint32(data, at + F.lit(4)))


@cache
def tables() -> tuple[tuple[int, ...], ...]:
    """Make a lookup table for each byte of a checksum, the lowest byte first. A table has the 256 numbers to XOR."""
    none = crc32(bytes(4))
    basis = _reduced([(crc32((1 << bit).to_bytes(4, "big")) ^ none, 1 << bit) for bit in range(_BITS)])
    offset = _combined(none, basis)
    return tuple(
        tuple(_combined(byte << 8 * place, basis) ^ (0 if place else offset) for byte in range(_BYTE + 1))
        for place in range(4)
    )


def _reduced(pairs: list[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Reduce pairs of checksum and number until no two checksums have the same highest bit (Gaussian elimination)."""
    basis: dict[int, tuple[int, int]] = {}
    for checksum, number in pairs:
        while (top := checksum.bit_length()) in basis:
            checksum, number = checksum ^ basis[top][0], number ^ basis[top][1]  # noqa: PLW2901 (is reduced)
        basis[top] = checksum, number
    return basis


def _combined(checksum: int, basis: dict[int, tuple[int, int]]) -> int:
    number = 0
    while checksum:
        part, of_part = basis[checksum.bit_length()]
        checksum, number = checksum ^ part, number ^ of_part
    return number
