"""Describe the archive and the last write, for the API and the pages."""

from collections.abc import Sequence

import msgspec

from karrot.reporters.archive.contents import Contents
from karrot.reporters.archive.options import Options
from karrot.reporters.archive.segment_store import StoredSegment
from karrot.reporters.send_report import Fact, Report, Sent
from karrot.settings import types

_SHOWN = 20
_AGE = types.duration(1, 2**40)
_SIZE = types.size(1, 2**60)
_MIB = 2**20


def report_of(options: Options, contents: Contents, written: Sequence[StoredSegment], at_ms: int) -> bytes:
    """The note of a send that wrote something."""
    facts = [Fact("Place", str(options.place))]
    if contents.oldest is not None:
        size = f"{contents.size / _MIB:.1f} MiB"
        facts.append(Fact("Segments", f"{contents.segments}, together {size}, from {contents.oldest.folder} on"))
    facts.append(Fact("Kept", f"{_AGE.show(options.retention_s)}, and at most {_SIZE.show(options.max_bytes)}"))
    sent = tuple(Sent(each.name.path, each.name.lines, "events", at_ms) for each in written[-_SHOWN:])
    return msgspec.json.encode(Report(at_ms, len(written), tuple(facts), sent))
