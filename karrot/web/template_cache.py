"""The templates of the pages, compiled before anybody waits for them."""

from types import CodeType

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket

_FIRST = ("base.html", "parts.html", "groups.html")
"""What whoever looks first looks at: a tenth of a second, in which no event would get its turn."""

_kept: dict[tuple[str, str], CodeType | None] = {}


def compile_first(environment: Environment) -> None:
    """Compile what is asked for first, unless this process has; the other templates follow when they are asked for."""
    environment.bytecode_cache = _InMemory()
    for name in _FIRST:
        environment.get_template(name)


class _InMemory(BytecodeCache):
    """Code by a template's place and content, for every application of the process: tests make hundreds."""

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = _kept.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        _kept[bucket.key, bucket.checksum] = bucket.code
