"""What a comparison of sets of rules says, in sentences: what each gains and what it loses beside the first."""

from collections.abc import Iterator
from datetime import UTC, datetime

from karrot.pipeline.replay.compare import Comparison, Group, Outcome
from karrot.web.human import duration

__all__ = ["sentences"]

_NAMED = 3


def sentences(comparison: Comparison) -> Iterator[str]:
    """One or two for each set, and what to conclude."""
    first, *others = comparison.outcomes
    yield f"{first.rules.name}: {_in_itself(first)}{_finding(first)}"
    for each in others:
        yield f"{each.rules.name}: {_in_itself(each)}, {_beside(each, first)}{_finding(each)}"
    yield from _conclusions(comparison)


def _in_itself(one: Outcome) -> str:
    said = f"{_counted(len(one.incidents), 'incident')}, {duration(one.minutes_not_ok * 60)} not OK"
    return said + (f", {one.without_standstill} of them while all partitions moved" if one.without_standstill else "")


def _beside(one: Outcome, first: Outcome) -> str:
    """How it differs from the first set, incident by incident."""
    if [each.rules for each in (one, first)] == [one.rules] * 2:
        return "the same rules"
    shifts = sorted(each.delay for each in one.alike if each.delay is not None)
    parts = [f"{len(shifts)} of the {len(first.incidents)} that {first.rules.name} has"]
    if shifts and (middle := shifts[len(shifts) // 2]):
        parts.append(f"half of these at least {duration(abs(middle))} {'later' if middle > 0 else 'sooner'}")
    if one.alone:
        parts.append(f"and {one.alone} that it has not")
    return ", ".join(parts)


def _finding(one: Outcome) -> str:
    if not one.found:
        return ""
    said = f"; found {len(one.delays)} of {_counted(len(one.found), 'stand-still')}"
    if one.median_delay is not None:
        said += f", after {duration(one.median_delay)} in the middle and {duration(one.delays[-1])} at the latest"
    if one.missed:
        named = ", ".join(f"{_name(each.group)} at {_clock(each.from_ms)}" for each in one.missed[:_NAMED])
        more = len(one.missed) - _NAMED
        said += f"; missed {named}" + (f" and {more} more" if more > 0 else "")
    return said


def _conclusions(comparison: Comparison) -> Iterator[str]:
    """Only what the figures bear out: quieter and finding no less, or quieter at a price."""
    first, *others = comparison.outcomes
    for one in others:
        fewer = len(first.incidents) - len(one.incidents)
        lost = len(first.delays) - len(one.delays)
        slower = (one.median_delay or 0) - (first.median_delay or 0)
        if fewer > 0 and comparison.standstills:
            price = f"finds {lost} stand-stills fewer" if lost > 0 else "finds no stand-still less"
            late = f", {duration(slower)} later" if slower > 0 and one.delays else ""
            yield f"{one.rules.name} has {_counted(fewer, 'incident')} fewer than {first.rules.name} and {price}{late}."
    if not comparison.standstills:
        yield "No partition stood still: what these rules would have missed cannot be told from this time."


def _name(group: Group) -> str:
    return f"{group.cluster}/{group.consumer}"


def _clock(epoch_ms: int) -> str:
    return f"{datetime.fromtimestamp(epoch_ms / 1000, UTC):%m-%d %H:%M}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
