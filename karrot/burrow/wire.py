"""Defines the JSON objects that Burrow v1.0.0 to v1.9.5 sends, field by field.

Sources: ``core/protocol/evaluator.go``, ``core/protocol/storage.go``, ``core/internal/notifier/helpers.go`` and
``core/internal/httpserver/structs.go``. Field order is Burrow's order. Unknown keys are ignored. A field with a
default may be missing, because older releases do not send it; ``None`` stands for ``null`` and for missing.
"""

from typing import Annotated

from msgspec import Meta, Raw, Struct, field

UINT64_MAX = 2**64 - 1

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
UInt64 = Annotated[int, Meta(ge=0)]
"""Up to `UINT64_MAX`; whoever reads one checks that bound, which is beyond what msgspec can."""


class CommitJson(Struct, gc=False):
    """Oldest or newest stored commit of a partition. ``observedAt`` since v1.3.3; ``lag`` may be null since v1.3.0."""

    offset: Int64
    timestamp: Int64
    observed_at: Int64 | None = field(default=None, name="observedAt")
    lag: UInt64 | None = None


class PartitionJson(Struct, kw_only=True):
    """One partition of a group. ``client_id`` since v1.2.1."""

    topic: str
    partition: Int32
    owner: str | None = None
    client_id: str | None = None
    status: str
    start: CommitJson | None = None
    end: CommitJson | None = None
    current_lag: UInt64 | None = None
    complete: float | None = None


class Verdict(Struct, kw_only=True):
    """The evaluation of one group: ``Result`` in a webhook, ``status`` in a REST reply."""

    cluster: str | None = None
    group: str | None = None
    status: str
    complete: float | None = None
    partitions: list[PartitionJson] | None = None
    partition_count: Count | None = None
    maxlag: PartitionJson | None = None
    totallag: UInt64 | None


class NotificationJson(Struct, kw_only=True, rename="pascal"):
    """What ``{{ jsonencoder . }}`` writes. ``Start`` is left undecoded: nothing it holds makes a body wrong."""

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
    """Of a listed partition its status alone."""

    status: str


class OutlinedVerdict(Struct):
    """`Verdict` with hardly anything of the partitions it lists: read thirty times as fast."""

    status: str
    totallag: UInt64 | None
    maxlag: PartitionJson | None = None
    partitions: list[OutlinedPartition] | None = None


class OutlinedNotification(Struct, rename="pascal"):
    """`NotificationJson` in outline."""

    cluster: str
    group: str
    result: OutlinedVerdict
    id: str | None = field(default=None, name="ID")


class OutlineJson(Struct):
    """A whole webhook body in outline."""

    event: OutlinedNotification = field(name="Event")


class RestReply(Struct):
    """A whole body of REST v3 ``/status`` and ``/lag``."""

    error: bool = False
    message: str = ""
    status: Verdict | None = None
