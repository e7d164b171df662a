"""What a comparison of sets of rules says, in sentences: what each gains and what it loses beside the first."""

from collections.abc import Iterator
from datetime import UTC, datetime

from karrot.pipeline.replay.comparison import ReplayedIncident, RuleSetComparison, RuleSetOutcome, Standstill
from karrot.text import counted, duration

_NAMED = 3


def sentences(comparison: RuleSetComparison) -> Iterator[str]:
    """One for each set, and then what to conclude."""
    first, *others = comparison.outcomes
    yield f"{first.rules.name}: {_in_itself(first)}{_finding(first)}"
    for each in others:
        yield f"{each.rules.name}: {_in_itself(each)}{_beside(each, first)}{_finding(each)}"
    if not comparison.standstills:
        yield "No partition stood still: what a set of rules would have missed cannot be told from this time."
        return
    for each in others:
        if len(each.incidents) < len(first.incidents):
            yield _price(each, first)


def _in_itself(one: RuleSetOutcome) -> str:
    if not one.incidents:
        return "no incident"
    moved = f" ({one.without_standstill:,} while every partition moved)" if one.without_standstill else ""
    return f"{counted(len(one.incidents), 'incident')}{moved}, {duration(one.minutes_not_ok * 60)} not OK"


def _beside(one: RuleSetOutcome, first: RuleSetOutcome) -> str:
    """How it differs from the first set, incident by incident."""
    shifts = sorted(each.delay for each in one.alike if each.delay is not None)
    if not (shifts or one.alone):
        return ""
    said = f"; {len(shifts):,} of {first.rules.name}'s {len(first.incidents):,}"
    if shifts and (middle := shifts[len(shifts) // 2]):
        said += f", half of these at least {duration(abs(middle))} {'later' if middle > 0 else 'sooner'}"
    return said + (f", and {one.alone:,} of its own" if one.alone else "")


def _finding(one: RuleSetOutcome) -> str:
    if not one.found:
        return ""
    said = f"; found {len(one.delays):,} of {counted(len(one.found), 'stand-still')}"
    if len(one.delays) > 1 and one.median_delay is not None:
        said += f", half of them within {duration(one.median_delay)}, the last after {duration(one.delays[-1])}"
    elif one.delays:
        said += f", after {duration(one.delays[0])}"
    if missed := one.missed:
        said += f"; missed {', '.join(map(_named, missed[:_NAMED]))}"
        said += f" and {len(missed) - _NAMED:,} more" if len(missed) > _NAMED else ""
    return said


def _price(one: RuleSetOutcome, first: RuleSetOutcome) -> str:
    """What the incidents that it has not cost."""
    fewer, lost = len(first.incidents) - len(one.incidents), len(first.delays) - len(one.delays)
    price = f"finds {counted(lost, 'stand-still')} less" if lost > 0 else "finds no stand-still less"
    later = (one.median_delay or 0) - (first.median_delay or 0)
    late = f", {duration(later)} later" if later > 0 else ""
    return f"{one.rules.name} has {counted(fewer, 'incident')} fewer than {first.rules.name} and {price}{late}."


def _named(what: Standstill | ReplayedIncident) -> str:
    at = datetime.fromtimestamp(what.from_ms / 1000, UTC)
    lasted = duration((what.to_ms - what.from_ms) / 1000)
    return f"{what.group.cluster}/{what.group.consumer} at {at:%m-%d %H:%M} for {lasted}"
