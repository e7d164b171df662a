"""Reads the blocks of a Terraform file, with the source text of each expression."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import hcl2
from lark import Token, Tree

Node = Tree[Token]

REFERENCE = re.compile(r"(?<![\w.])((?:data\.)?aws_\w+)\.([\w-]+)(?:\[([^\]]+)\])?\.(\w+)")
"""A reference to an attribute of a resource: the type, the name, the key of the instance, and the attribute."""


class Block(NamedTuple):
    """A block: its kind, labels, attributes with their expressions, inner blocks, and its own text."""

    kind: str
    labels: list[str]
    attributes: dict[str, str]
    blocks: list["Block"]
    text: str


def read_blocks(text: str) -> list[Block]:
    """The blocks at the top of a file, with the blocks in them."""
    [body] = _trees(hcl2.parses_to_tree(text))
    return list(_blocks(text, body))


def _blocks(text: str, body: Node) -> Iterator[Block]:
    for node in _trees(body):
        if node.data == "block":
            *words, inner = _trees(node)
            kind, *labels = (_source(text, word).strip('"') for word in words)
            attributes = dict(
                [_source(text, part) for part in _trees(each)] for each in _trees(inner) if each.data == "attribute"
            )
            yield Block(kind, labels, attributes, list(_blocks(text, inner)), _source(text, node))


def _trees(node: Node) -> list[Node]:
    return [each for each in node.children if isinstance(each, Tree) and each.data != "new_line_or_comment"]


def _source(text: str, node: Node) -> str:
    words = list(node.scan_values(lambda each: isinstance(each, Token)))
    return text[words[0].start_pos : words[-1].end_pos].strip()
