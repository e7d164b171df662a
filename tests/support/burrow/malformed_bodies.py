"""Makes malformed webhook bodies and unusual group names."""

import json
import re
import sys
import unicodedata
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from support.burrow.recorded_bodies import expected_events, recorded_body

_DATA = Path(__file__).resolve().parents[2] / "data" / "hostile"

ALLOWED_STATUSES = frozenset({202, 400, 413, 415, 503})
RECORDED_BODIES = [recorded_body(name) for name in sorted(expected_events())]
FRAGMENTS = [
    *(b'"\\ud800"', b'"\\u0000"', b'"\\u2028\\r\\n"', b"18446744073709551615", b"18446744073709551616", b"-1"),
    *(b"1e400", b"NaN", b"-Infinity", b"9" * 5_000, b"[" * 100_000, b'{"a":' * 2_000, b'""', b"null", b"{}", b"\xff"),
    *(b'"' + b"n" * 65_536 + b'"', b'{"Event": }', b'"Status":"ERR",', b"\x00", b"\xef\xbb\xbf", b'"\\"', b"//"),
]
_USUAL = [body for body in RECORDED_BODIES if len(body) < 10_000]
_SMALL_PIECES = [piece for piece in FRAGMENTS if len(piece) < 100]
_PRINTABLE = range(0x20, 0x7F)
_VALUE = re.compile(rb'(?<=[:\[,])\s*("(?:[^"\\]|\\.)*"|[\w.+-]+)')


def mutate_body(body: bytes, random: Random) -> bytes:
    """Return the body with a few bytes inserted, overwritten or removed, or with one value replaced."""
    for _ in range(random.randint(1, 2)):
        body = _spliced(body, random) if random.random() < 0.3 else _revalued(body, random)
    return body


def malformed_bodies(random: Random) -> Iterator[bytes]:
    """Yield without end Burrow's bodies with faults, unusual names, other JSON, and random bytes."""
    known = list(unusual_group_names())
    while True:
        kind = random.random()
        if kind < 0.5:
            yield mutate_body(random.choice(RECORDED_BODIES if random.random() < 0.05 else _USUAL), random)
        elif kind < 0.8:
            yield _renamed(random.choice(_USUAL), _name(random, known))
        elif kind < 0.9:
            yield json.dumps(_json(random, 4)).encode()
        else:
            yield random.randbytes(random.randint(0, 400))


def fuzzer_corpus() -> list[bytes]:
    """Return bodies that cover every path of the parser (``tests/data/hostile``)."""
    return [b64decode(line) for line in (_DATA / "fuzzed.base64").read_text().splitlines()]


def unusual_group_names() -> Iterator[str]:
    """Yield names with each category of Unicode, every control character and special characters of formats."""
    by_category = defaultdict(list)
    for character in map(chr, range(sys.maxunicode + 1)):
        by_category[unicodedata.category(character)].append(character)
    del by_category["Cs"]  # half of a surrogate pair is not text and is refused
    for members in by_category.values():
        for character in {members[0], members[len(members) // 2], members[-1]}:
            yield from (character, f"a{character}b")
    yield from (f"control-{character}-" for character in by_category["Cc"])
    yield from (
        "",
        " ",
        "  ",
        '"',
        "\\",
        "\\n",
        "\n",
        '\\"',
        "{}",
        '",consumer="other',
        "a\nkarrot_consumer_lag 1\n# EOF",
    )
    yield from (
        "\N{LATIN SMALL LETTER E WITH ACUTE}",
        "e\N{COMBINING ACUTE ACCENT}",
        "\ufeffbom",
        "\u202egnp.exe",
        "🏳️‍🌈",
    )
    yield from ("NaN", "+Inf", "$(reboot)", "../../etc/passwd", "%00", "<script>", "x" * 512, "x" * 513, "🐫" * 256)


def _spliced(body: bytes, random: Random) -> bytes:
    at = random.randint(0, len(body))
    kind = random.random()
    if kind < 0.8:
        piece = bytes(random.choices(_PRINTABLE, k=random.randint(0, 20)))
    else:
        piece = random.choice(FRAGMENTS) if kind < 0.9 else random.randbytes(random.randint(1, 20))
    return body[:at] + piece + body[at + random.randint(0, 40) :]


def _revalued(body: bytes, random: Random) -> bytes:
    places = [found.span(1) for found in _VALUE.finditer(body[:8_192])]
    if not places:
        return _spliced(body, random)
    start, end = random.choice(places)
    value = random.choice(_SMALL_PIECES) if random.random() < 0.3 else json.dumps(_json(random, 2)).encode()
    return body[:start] + value + body[end:]


def _renamed(body: bytes, name: str) -> bytes:
    return re.sub(rb'"Group": ?"[^"]*"', lambda _: b'"Group":' + json.dumps(name).encode(), body)


def _name(random: Random, known: list[str]) -> str:
    if random.random() < 0.3:
        return random.choice(known)
    return "".join(_character(random) for _ in range(random.randint(1, 30)))


def _character(random: Random) -> str:
    most = random.choice((0x7F, 0x7FF, 0xD7FF, sys.maxunicode))
    character = chr(random.randint(0, most))
    return "?" if unicodedata.category(character) == "Cs" else character


def _json(random: Random, depth: int) -> Any:
    kind = random.randrange(8 if depth else 6)
    if kind == 6:
        return [_json(random, depth - 1) for _ in range(random.randint(0, 4))]
    if kind == 7:
        return {_name(random, ["Event", "Status"]): _json(random, depth - 1) for _ in range(random.randint(0, 4))}
    whole = random.randint(-(2 ** random.randint(1, 70)), 2 ** random.randint(1, 70))
    return (None, True, whole, random.uniform(-1e9, 1e9), random.random() * 10.0 ** random.randint(-300, 300),
            _name(random, ["OK", "WARN", "ERR", "STOP"]))[kind]  # fmt: skip
