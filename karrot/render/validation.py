"""Checks the options of the renderers. Each check yields a message if the value is wrong."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from karrot.settings import types

_MOST = 1e12


def refuse(problems: Iterable[str]) -> None:
    """Raise `ValueError` with a line for each problem, if any."""
    if sentences := list(problems):
        raise ValueError("\n".join(sentences))


def ecs_name(option: str, text: str | None) -> Iterator[str]:
    allowed = "the name that ECS knows, up to 255 letters, digits, hyphens and underscores"
    return matching(option, text, r"[A-Za-z0-9_-]{1,255}", allowed)


def asg_name(text: str | None) -> Iterator[str]:
    """Check the name of an Auto Scaling group, which must be a valid dimension of a CloudWatch metric."""
    allowed = "the name of the Auto Scaling group, up to 255 printable ASCII characters without a colon"
    return matching("--asg-name", text, r"(?=.*[!-~])[ -9;-~]{1,255}", allowed)


def topic(text: str | None) -> Iterator[str]:
    """Check the ARN of an SNS topic; ``None`` is allowed."""
    if text is not None:
        allowed = "the ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:alarms"
        pattern = r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}"
        yield from matching("--sns-topic-arn", text, pattern, allowed)


def matching(option: str, text: str | None, pattern: str, allowed: str) -> Iterator[str]:
    if text is None:
        yield f"{option} is missing: it must be {allowed}"
    elif not re.fullmatch(pattern, text, re.ASCII):
        yield f"{option} is {types.quoted(text)}: it must be {allowed}"


def free_text(option: str, text: str) -> Iterator[str]:
    """Check the name of a cluster or consumer group. Almost any string is allowed, because names are encoded later."""
    if re.search("[\ud800-\udfff]", text):
        yield f"{option} is {types.quoted(text)}: it must be a text in UTF-8"
    if "{{resolve:" in text:
        yield f"{option} is {types.quoted(text)}: CloudFormation would replace {{{{resolve:...}}}} with another value"


def of_kind(kind: types.ValueKind[Any], option: str, text: str) -> Iterator[str]:
    try:
        types.checked(kind, option, text)
    except ValueError as error:
        yield str(error)


def number(option: str, value: float) -> Iterator[str]:
    """Check that a number is above zero and finite."""
    if not 0 < value <= _MOST:
        yield f"{option} is {value}: it must be a number above 0, at most {_MOST:.0f}"


def whole(option: str, value: int | None, low: int, high: int) -> Iterator[str]:
    """Check that a whole number is from ``low`` to ``high``; ``None`` is allowed."""
    if value is not None and not low <= value <= high:
        yield f"{option} is {value}: it must be a whole number from {low} to {high}"
