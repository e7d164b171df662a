"""Compiles the templates of the first page before it is requested, and keeps compiled templates."""

from types import CodeType

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket

_FIRST = ("base.html", "parts.html", "groups.html")
"""What the first page needs. To compile it takes a tenth of a second, in which no event would get its turn."""

_kept: dict[tuple[str, str], CodeType | None] = {}


def compile_first(environment: Environment) -> None:
    """Compile what the first page needs, unless this process has; other templates are compiled when they are needed."""
    environment.bytecode_cache = _InMemory()
    for name in _FIRST:
        environment.get_template(name)


class _InMemory(BytecodeCache):
    """Code by a template's place and content, for every application of the process: tests make hundreds."""

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = _kept.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        _kept[bucket.key, bucket.checksum] = bucket.code
