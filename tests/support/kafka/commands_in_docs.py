"""Finds the commands of Kafka, such as ``kafka-topics.sh``, in pages of the documentation."""

import re
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^ *```(?:shell|bash|sh|console)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_COMMAND = re.compile(r"(?:^|[|;&(]\s*)(kafka-[a-z-]+)(?:\.sh)?\s+\S")
_COMMENT = re.compile(r"\s+# .*$")


class KafkaCommand(NamedTuple):
    """A line of a page that runs a command of Kafka. ``name`` has no ``.sh``."""

    page: Path
    name: str
    line: str


def commands_in(page: Path) -> list[KafkaCommand]:
    """Return the commands in the blocks and in the sentences of a page, without their comments."""
    text = page.read_text(encoding="utf-8")
    blocks = [found[1].replace("\\\n", " ") for found in _FENCE.finditer(text)]
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    lines += _INLINE.findall(re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))
    found = []
    for line in (_COMMENT.sub("", each) for each in lines):
        command = _COMMAND.search(line)
        if command is not None:
            found.append(KafkaCommand(page, command[1], line))
    return found


def in_runbooks(docs: Path) -> list[KafkaCommand]:
    return [each for page in sorted((docs / "runbooks").glob("*.md")) for each in commands_in(page)]
