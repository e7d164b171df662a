"""Asks Karrot about all groups every two seconds, and compares what it shows with what Kafka says."""

import re
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from html import unescape
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlencode

from e2e.truth.plan import CLUSTER, INTERVAL_S, Case, Place, Proof, Sighting
from e2e.truth.world import World
from karrot.text import count
from support.prometheus.prometheus_server import Prometheus
from support.service.karrot_service import Service

ITSELF: Final = "Karrot itself"
"""The name of alerts that are about no group."""

_NO_FAULT = {"OK", "LEFT", "ABANDONED"}
_MOST_PROOFS = 8
_PAUSE_BETWEEN_FIRINGS_S = 16
_NEAR = 500

Json = dict[str, Any]


class Observer:
    """What Karrot says, from the start of its thread to `finish`."""

    def __init__(self, world: World, service: Service) -> None:
        self._world = world
        self._service = service
        self.sightings: dict[str, Sighting] = defaultdict(Sighting)
        self.silent_s = 0.0
        """The longest time without an answer of Karrot."""

    def run(self) -> None:
        answered, stopping = self._world.now(), threading.Event()
        while not self._world.stopping.is_set():
            with suppress(OSError, HTTPException, ValueError):
                self._look()
                answered = self._world.now()
            self.silent_s = max(self.silent_s, self._world.now() - answered)
            stopping.wait(INTERVAL_S)

    def finish(self, prometheus: Prometheus) -> None:
        """Look at each fault once more, and take the alerts of the whole run."""
        for case in self._cases():
            if case.proof is not None:
                self.sightings[case.group].lack_at_end = self._lack(case.group, case.proof, is_end=True)
        for alert in prometheus.query('ALERTS{alertstate="firing"}[2h]'):
            times = [float(at) for at, _ in alert["values"]]
            starts = [
                at for before, at in zip([0.0, *times], times, strict=False) if at - before > _PAUSE_BETWEEN_FIRINGS_S
            ]
            labels = alert["metric"]
            self.sightings[labels.get("consumer", ITSELF)].alerts.setdefault(labels["alertname"], []).extend(starts)

    def _look(self) -> None:
        now = self._world.now()
        page = self._service.get("/api/v1/groups?limit=1000").json
        assert page["next"] is None
        for group in page["groups"]:
            self._note(group, now)
        unproved = [
            case for case in self._cases() if case.proof and case.planted_at is not None and self._is_due(case, now)
        ]
        for case in unproved[:_MOST_PROOFS]:
            sighting = self.sightings[case.group]
            sighting.lack = self._lack(case.group, case.proof) if case.proof else ""

    def _is_due(self, case: Case, now: float) -> bool:
        """Return whether the proof is still missing, and the time for it is not over."""
        sighting = self.sightings[case.group]
        until = (case.planted_at or 0) + case.limit_s
        return (
            sighting.found_at is not None
            and bool(sighting.lack)
            and now <= max(until, sighting.found_at) + INTERVAL_S * 3
        )

    def _note(self, group: Json, now: float) -> None:
        name, incident = group["consumer"], group["incident"]
        sighting = self.sightings[name]
        sighting.incidents = max(sighting.incidents, group["incidents_total"])
        is_bad = incident is not None or group["status"] in {"WARN", "ERR"}
        sighting.open_at_end = is_bad
        change = (group["status"], incident["id"] if incident else "")
        if not sighting.changes or sighting.changes[-1][1:] != change:
            sighting.changes.append((round(now, 1), *change))
        if is_bad and sighting.found_at is None:
            sighting.found_at = now
            sighting.sentence = _sentence(self._page(name)) or "no sentence"

    def _cases(self) -> Iterable[Case]:
        return tuple(self._world.cases.values())

    def _page(self, group: str) -> str:
        return self._service.get(f"/group?{_asked(group)}").body.decode()

    def _lack(self, group: str, proof: Proof, *, is_end: bool = False) -> str:
        """Say what the proof lacks; nothing if it is complete."""
        answer = self._service.get(f"/api/v1/group?{_asked(group)}")
        if answer.status != 200:
            return f"the API answers {answer.status}"
        partitions = {(each["topic"], each["partition"]): each for each in answer.json["partitions"] or ()}
        bad = {place: each for place, each in partitions.items() if each["status"] not in _NO_FAULT}
        if wrong := bad.keys() - proof.places.keys():
            return f"names healthy partitions: {_statuses(bad, wrong)}"
        if not bad or (is_end and bad.keys() != proof.places.keys()):
            return f"does not name partitions: {sorted(proof.places.keys() - bad.keys())}"
        if odd := [place for place, each in bad.items() if each["status"] not in proof.places[place]]:
            return f"has the wrong status: {_statuses(bad, odd)}"
        committed = self._world.committed(group)
        for place, each in bad.items():
            shown = each["end"]["offset"] if each["end"] else None
            if each["status"] != "WARN" and shown != committed.get(place):
                return f"shows {place} at {shown}, and Kafka has {committed.get(place)}"
        page = self._page(group)
        return self._lack_of_page(page, bad) or _lack_of_words(page, proof.words)

    def _lack_of_page(self, page: str, bad: dict[Place, Json]) -> str:
        rows = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
        for (topic, partition), each in bad.items():
            told = [row for row in rows if _cell(row, "Partition") == str(partition) and topic in _text(row)]
            if not told:
                return f"the page has no row for partition {partition}"
            [row] = told
            if each["status"] not in {"WARN", "NEVER_COMMITTED"} and each["end"]:
                offset = count(each["end"]["offset"])
                if _cell(row, "Committed offset") != offset:
                    return f"the page shows offset {_cell(row, 'Committed offset')}, and the API {offset}"
            if each["status"] == "BEYOND_END":
                shown, end = _cell(row, "Log end offset").replace(",", ""), self._world.end(topic, partition)
                if not shown.isdigit() or not end - _NEAR <= int(shown) <= end:
                    return f"the page shows log end {shown}, and Kafka has {end}"
        return ""


def _asked(group: str) -> str:
    return urlencode({"cluster": CLUSTER, "consumer": group})


def _statuses(partitions: dict[Place, Json], places: Iterable[Place]) -> str:
    return ", ".join(f"{place[1]} {partitions[place]['status']}" for place in sorted(places))


def _text(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def _cell(row: str, label: str) -> str:
    found = re.search(rf'<td[^>]*data-label="{label}"[^>]*>(.*?)</td>', row, re.DOTALL)
    return _text(found[1]) if found else ""


def _sentence(page: str) -> str:
    """Return the text of the banner that explains the group's status."""
    found = re.search(r'<p class="wrong">(.*?)</div>', page, re.DOTALL)
    return _text(found[1]) if found else ""


def _lack_of_words(page: str, words: tuple[str, ...]) -> str:
    sentence = _sentence(page)
    if not sentence:
        return "the page has no sentence"
    missing = [word for word in words if word not in sentence]
    return f"the sentence does not say {missing}: {sentence}" if missing else ""
