"""Replays the events of a log, and yields the messages that they would have sent."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from karrot import mutes
from karrot.diagnosis.explanations import Explanation, explain
from karrot.diagnosis.known_facts import Known
from karrot.event import GroupKey
from karrot.eventlog.base import Cursor, GroupState
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.next_group_state import Arrival, after
from karrot.reporters.base import Unreported
from karrot.reporters.notify.messages import Message, Owners, Writer
from karrot.reporters.notify.reporter import Channel, Silence, in_trouble
from karrot.reporters.notify.routes import Route, Sender

_STEP_MS = 10_000


def replay(
    routes: Mapping[str, tuple[Route, Sender]],
    owners: Owners,
    external_url: str | None,
    log: EventLog,
    stale_after_ms: int,
) -> Iterator[tuple[int, str, Message]]:
    """Yield the wall time, the channel and the text of each message, oldest first. No channel fails in a replay.

    The log forgets a mute some seconds after its end, so only the mutes that still last silence a group.
    """

    def explained(state: GroupState) -> Explanation:
        event = stored.event if (stored := log.event(state.seq)) else None
        return explain(Known(tick_ms + ahead_ms, state, event, event.partitions if event else ()))

    def muted(keys: Sequence[GroupKey]) -> Collection[GroupKey]:
        begun = [mute for mute in known_mutes if 1000 * mute.since.timestamp() <= tick_ms + ahead_ms]
        return list(filter(mutes.finder(begun, tick_ms + ahead_ms), keys))

    writer, live, tick_ms = Writer(external_url, owners, log.event, explained), dict[GroupKey, GroupState](), 0
    channels = [Channel(name, route, writer, muted=muted) for name, (route, _) in routes.items()]
    silence, known_mutes = Silence(), mutes.read(log)
    ahead_ms = log.wall_ms_at(log.log_time_ms()) - log.log_time_ms()
    for stored in chain(Unreported(log, Cursor(log.log_id, 0)), (None,)):
        now_ms = log.log_time_ms() if stored is None else stored.log_time_ms
        tick_ms = tick_ms or now_ms
        while tick_ms <= now_ms:
            live = {key: state for key, state in live.items() if tick_ms - state.log_time_ms < stale_after_ms}
            bad = in_trouble(live)
            silence.look(live, tick_ms)
            for channel in channels:
                while message := channel.next_message(live, bad, silence.is_gone, tick_ms, tick_ms + ahead_ms):
                    channel.sent(message, tick_ms)
                    yield tick_ms + ahead_ms, channel.name, message
            tick_ms += _STEP_MS
        if stored is not None:
            key = GroupKey(stored.event.cluster, stored.event.consumer)
            arrived = Arrival(key, stored.event, stored.body, now_ms, now_ms, stored.summary, stale_after_ms)
            state = after(live.pop(key, None), stored.seq, arrived)
            live |= {} if state.gone else {key: state}
            silence.deleted |= {key} if state.gone else set()
