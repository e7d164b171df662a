"""Draws commits, log ends, members and events of a few groups around two midnights."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from support.pipeline.event_rows import event_row
from support.pipeline.offset_rows import commit_row, log_end_row, member_rows

Rows = list[dict[str, Any]]

_DAY_S = 86_400
_BURSTS = ((_DAY_S - 1_200, _DAY_S + 1_500), (_DAY_S + 36_000, _DAY_S + 37_000), (3 * _DAY_S, 3 * _DAY_S + 400))
"""The times with records, in seconds. Nothing happens on the third day."""

_PARTITIONS = [(topic, partition) for topic in ("t", "created again", "unpolled") for partition in range(3)]
_NEVER_POLLED = "unpolled"
_GROUPS = 8


@dataclass(slots=True)
class OffsetRows:
    """The rows of the streamed tables."""

    commits: Rows = field(default_factory=list)
    ends: Rows = field(default_factory=list)
    members: Rows = field(default_factory=list)
    events: Rows = field(default_factory=list)


def random_offsets(seed: int) -> OffsetRows:
    """Draw rows, in the order of time. The same seed draws the same rows, except for their places in the log."""
    rng, rows = Random(seed), OffsetRows()
    log_ends = dict.fromkeys(_PARTITIONS, 0)
    committed: dict[tuple[int, str, int], int] = {}
    generations = [0] * _GROUPS
    for seconds in _moments(rng):
        topic, partition = place = rng.choice(_PARTITIONS)
        log_ends[place] += rng.choice((0, 0, 10, 200)) if partition else 0
        if topic == "created again" and rng.random() < 0.01:
            log_ends[place] = rng.randrange(40)
        group = rng.randrange(_GROUPS)
        chance = rng.random()
        if chance < 0.3 and topic != _NEVER_POLLED:
            start = rng.choice((0, 0, None, log_ends[place]))
            rows.ends.append(log_end_row(seconds, log_ends[place], topic, partition) | {"start_offset": start})
        elif chance < 0.75:
            before = committed.get((group, *place), 0)
            offset = rng.choice(
                (log_ends[place], before, before + 3, max(0, log_ends[place] - 50), log_ends[place] + 7)
            )
            committed[group, *place] = offset
            deleted = rng.random() < 0.05
            late = rng.choice((0, 0, 0, 0, 0, 2)) if seconds % _DAY_S > 2 else 0
            rows.commits.append(commit_row(seconds - late, f"g{group}", None if deleted else offset, topic, partition))
        elif chance < 0.8:
            generations[group] += rng.choice((0, 1, 1))
            rows.members += _members(rng, seconds, group, generations[group])
        elif group % 2 or chance < 0.83:
            rows.events.append(_event(rng, seconds, group, committed, log_ends))
    return rows


def _moments(rng: Random) -> Iterator[float]:
    for begin, end in _BURSTS:
        seconds: float = begin
        while seconds < end:
            yield seconds
            seconds = round(seconds + rng.choice((0.001, 0.5, 1, 3)), 3)


def _members(rng: Random, seconds: float, group: int, generation: int) -> Rows:
    names = rng.sample("abcd", rng.randint(0, 3))
    assigned = {
        name: [partition for partition in range(3) if partition % len(names) == at] for at, name in enumerate(names)
    }
    rows = member_rows(seconds, f"g{group}", generation, assigned)
    static = {name: rng.choice((None, f"static {name}")) for name in names}
    hosts = {name: rng.choice(("", None, f"/{name}")) for name in names}
    return [
        row
        | (
            {"instance_id": static[name], "client_host": hosts[name], "client_id": rng.choice(("", "x"))}
            if name
            else {}
        )
        for row in rows
        for name in [row.get("member_id")]
    ]


def _event(
    rng: Random,
    seconds: float,
    group: int,
    committed: dict[tuple[int, str, int], int],
    log_ends: dict[tuple[str, int], int],
) -> dict[str, Any]:
    listed: Rows = [
        {
            "topic": topic,
            "partition": partition,
            "end_offset": offset,
            "current_lag": max(0, log_ends[topic, partition] - offset),
            "owner": rng.choice((None, "/e")),
        }
        for (number, topic, partition), offset in committed.items()
        if number == group and rng.random() < 0.9
    ]
    # The first group has events that list all partitions, the others hardly ever.
    count = len(listed) if group == 1 or rng.random() < 0.01 else 99
    total = sum(one["current_lag"] for one in listed)
    word = rng.choice(("ok", "warn", "err", "gone"))
    told = {
        "total_lag": total,
        "lag_seconds": rng.choice((None, 5.0, 90.0)),
        "partition_count": count,
        "listed": listed,
    }
    return event_row(seconds, word, consumer=f"g{group}", **told)
