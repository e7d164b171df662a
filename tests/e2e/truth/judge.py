"""Decides about each group, and counts."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from e2e.truth.plan import Case, Sighting


class Verdict(NamedTuple):
    """What is wrong with what Karrot said about a group; empty texts if nothing is."""

    incident: str = ""
    alert: str = ""
    missed: str = ""
    twice: str = ""
    unproved: str = ""

    @property
    def reasons(self) -> list[str]:
        return [each for each in self if each]


class Judged(NamedTuple):
    case: Case
    sighting: Sighting
    verdict: Verdict

    @property
    def is_false(self) -> bool:
        return self.case.proof is None and bool(self.verdict.reasons)

    @property
    def is_missed(self) -> bool:
        return self.case.proof is not None and bool(self.verdict.reasons)

    @property
    def took_s(self) -> float | None:
        if self.sighting.found_at is None or self.case.planted_at is None:
            return None
        return self.sighting.found_at - self.case.planted_at


def judged(cases: Iterable[Case], sightings: Mapping[str, Sighting]) -> list[Judged]:
    found = []
    for case in cases:
        sighting = sightings.get(case.group, Sighting())
        verdict = _of_harmless(sighting) if case.proof is None else _of_fault(case, sighting)
        found.append(Judged(case, sighting, verdict))
    return found


def _of_harmless(sighting: Sighting) -> Verdict:
    at = "" if sighting.found_at is None else f" at {sighting.found_at:.0f} s: {sighting.sentence}"
    incident = f"{sighting.incidents} incidents,{at}" if sighting.incidents else ""
    return Verdict(incident, alert=", ".join(sorted(sighting.alerts)))


def _of_fault(case: Case, sighting: Sighting) -> Verdict:
    repeated = [f"{name} fired {len(starts)} times" for name, starts in sighting.alerts.items() if len(starts) > 1]
    if sighting.incidents > 1:
        repeated.insert(0, f"{sighting.incidents} incidents")
    missed = _missed(case, sighting)
    unproved = sighting.lack or (f"at the end: {sighting.lack_at_end}" if sighting.lack_at_end else "")
    return Verdict(missed=missed, twice=", ".join(repeated), unproved="" if sighting.found_at is None else unproved)


def _missed(case: Case, sighting: Sighting) -> str:
    if case.planted_at is None or sighting.found_at is None:
        return "not found" if case.planted_at is not None else "the fault was not planted"
    took = sighting.found_at - case.planted_at
    if took < 0:
        return f"found {-took:.0f} s before it was planted: {sighting.sentence}"
    if took > case.limit_s:
        return f"found after {took:.0f} s, more than {case.limit_s:.0f} s"
    if not sighting.open_at_end:
        return "ended, and the fault goes on"
    if not case.alerts or sighting.alerts.keys() & set(case.alerts):
        return ""
    return f"no alert: expected {' or '.join(case.alerts)}, fired {', '.join(sorted(sighting.alerts)) or 'none'}"


def last_line(found: list[Judged]) -> str:
    harmless = [each for each in found if each.case.proof is None]
    planted = [each for each in found if each.case.proof is not None]
    false, missed = sum(each.is_false for each in harmless), sum(each.is_missed for each in planted)
    return f"truth: false {false} of {len(harmless)}, missed {missed} of {len(planted)}"


def is_true(found: list[Judged]) -> bool:
    """Return whether there are no false alarms and no silence."""
    return bool(found) and not any(each.verdict.reasons for each in found)


def seconds(rows: list[Judged]) -> str:
    """Return the median and the longest time to find."""
    took = [each.took_s for each in rows if each.took_s is not None and each.took_s >= 0]
    return f"{median(took):.0f} / {max(took):.0f}" if took else "-"
