"""Defines the JSON objects around the partitions (`karrot.event`) that Burrow v1.0.0 to v1.9.5 sends.

Sources: ``core/protocol/evaluator.go``, ``core/protocol/storage.go``, ``core/internal/notifier/helpers.go`` and
``core/internal/httpserver/structs.go``. The fields are in the order in which Burrow writes them. Unknown keys are
ignored. Fields with a default may be missing, because older releases do not send them. ``None`` means ``null`` or
missing.
"""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct, field

from karrot.event import PartitionLag, UInt64

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

Code = Literal[
    "empty_body", "not_utf8", "invalid_json", "not_an_object", "unsupported_template", "invalid_field", "invalid_text"
]


class Verdict(Struct, kw_only=True):
    """The evaluation of one group: ``Result`` in a webhook, ``status`` in a REST reply."""

    cluster: str | None = None
    group: str | None = None
    status: str
    complete: float | None = None
    partitions: tuple[PartitionLag, ...] | None = None
    partition_count: Count | None = None
    maxlag: PartitionLag | None = None
    totallag: UInt64 | None


class NotificationJson(Struct, kw_only=True, rename="pascal"):
    """The output of ``{{ jsonencoder . }}``. ``Start`` is not decoded, so a body with an invalid start is accepted."""

    cluster: str
    group: str
    id: str | None = field(default=None, name="ID")
    start: Raw = Raw(b"null")
    extras: dict[str, str] | None = None
    result: Verdict


class WebhookJson(Struct):
    """A whole webhook body."""

    event: NotificationJson = field(name="Event")


class OutlinedPartition(Struct):
    """A listed partition. Only its status is decoded."""

    status: str


class OutlinedVerdict(Struct):
    """`Verdict` with only the statuses of the listed partitions. It is decoded thirty times as fast."""

    status: str
    totallag: UInt64 | None
    maxlag: PartitionLag | None = None
    partitions: list[OutlinedPartition] | None = None


class OutlinedNotification(Struct, rename="pascal"):
    """`NotificationJson` with an `OutlinedVerdict`."""

    cluster: str
    group: str
    result: OutlinedVerdict
    id: str | None = field(default=None, name="ID")


class OutlineJson(Struct):
    """A whole webhook body with an `OutlinedVerdict`."""

    event: OutlinedNotification = field(name="Event")


class RestReply(Struct):
    """A whole body of REST v3 ``/status`` and ``/lag``."""

    error: bool = False
    message: str = ""
    status: Verdict | None = None


class MalformedPayload(ValueError):  # noqa: N818 (the name describes the body, not an error of Karrot)
    """The body does not have the form that Burrow sends.

    ``code`` is stable. The answer, the metric label and the log use the same word. ``path`` is the JSON path of the
    wrong field, if one field is wrong. The text is a message for people and has a limited length.
    """

    def __init__(self, code: Code, sentence: str, path: str | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.path = path


def wrong(path: str, what: str) -> MalformedPayload:
    """The error for one wrong field, named by its JSON path."""
    return MalformedPayload("invalid_field", f"The field {path} is wrong: {what}.", path)
