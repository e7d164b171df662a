"""Chooses the groups that have metrics, because each metric costs money."""

from collections import OrderedDict
from hashlib import sha256

import msgspec
import structlog

from karrot.event import GroupKey
from karrot.settings.options import CloudWatch as Options

OUTSIDE_BOUND = 100_000
"""The highest count of groups without metrics. A larger number is shown as this count."""

_QUARTER_MS = 6 * 3_600_000  # the unit of silence, so that a group changes the dump at most 4 times a day
_SILENT_QUARTERS = 4
_LONGEST = 1024

_log = structlog.get_logger(__name__)


class Membership:
    """Chooses the groups whose metrics are sent ("inside" the limit), at most ``options.max_groups``.

    A deleted group leaves. A group that was silent for a day (24 to 30 hours of log time) leaves if another group needs
    the place. ``kept`` is the `dump` of an earlier process. If ``kept`` has more wanted groups than the limit, the
    groups with the newest events stay inside. Only one thread may use this object.
    """

    def __init__(self, options: Options, kept: bytes | None = None) -> None:
        self._max_groups = options.max_groups
        try:
            clusters = msgspec.json.decode(kept or b"{}", type=dict[str, dict[str, int]])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.error("the groups with metrics are chosen again", code="groups_chosen_again", reason=str(error))
            clusters = {}
        every = [(quarter, GroupKey(cluster, one)) for cluster, of in clusters.items() for one, quarter in of.items()]
        heard = sorted(each for each in every if options.wants(each[1].consumer))[-self._max_groups :]
        self._inside = OrderedDict((key, quarter) for quarter, key in heard)  # quarter of the last event, oldest first
        self._outside: dict[int, int] = {}  # quarter by the key's hash, as names can be long
        self._quarter = heard[-1][0] if heard else 0
        self.changed = len(heard) != len(every)
        """Whether the groups changed since the last saved `dump`. The caller sets it to false after it saves a dump."""

    @property
    def inside(self) -> int:
        return len(self._inside)

    @property
    def outside(self) -> int:
        """The number of groups that were left out within the last day, at most `OUTSIDE_BOUND`."""
        self._outside = {key: heard for key, heard in self._outside.items() if not self._is_silent(heard)}
        return len(self._outside)

    def admits(self, key: GroupKey, log_time_ms: int) -> bool:
        """Admit a group with a new event if the limit allows. Return whether the group is inside."""
        key = _shortened(key)
        self._quarter = max(self._quarter, log_time_ms // _QUARTER_MS)
        if key not in self._inside and len(self._inside) >= self._max_groups:
            oldest = next(iter(self._inside))
            if not self._is_silent(self._inside[oldest]):
                if hash(key) in self._outside or len(self._outside) < OUTSIDE_BOUND:
                    self._outside[hash(key)] = self._quarter
                return False
            del self._inside[oldest]
        if self._inside.get(key) != self._quarter:
            self._inside[key] = self._quarter
            self._inside.move_to_end(key)
            self._outside.pop(hash(key), None)
            self.changed = True
        return True

    def leaves(self, key: GroupKey) -> None:
        key = _shortened(key)
        self._outside.pop(hash(key), None)
        if self._inside.pop(key, None) is not None:
            self.changed = True

    def dump(self) -> bytes:
        """Encode the groups inside as JSON. The same groups always give the same JSON."""
        kept: dict[str, dict[str, int]] = {}
        for (cluster, consumer), quarter in self._inside.items():
            kept.setdefault(cluster, {})[consumer] = quarter
        return msgspec.json.encode(kept, order="sorted")

    def _is_silent(self, quarter: int) -> bool:
        return self._quarter - quarter > _SILENT_QUARTERS


def _shortened(key: GroupKey) -> GroupKey:
    """Shorten long names in a key for the dump. A SHA-256 keeps two shortened names different."""
    return GroupKey(
        *(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}~{sha256(name.encode()).hexdigest()}" for name in key)
    )
