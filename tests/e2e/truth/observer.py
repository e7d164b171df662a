"""Asks Karrot about all groups every two seconds, and compares what it shows with what Kafka says."""

import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from http.client import HTTPException
from typing import Final
from urllib.parse import urlencode

from e2e.truth.plan import CLUSTER, INTERVAL_S, Case, Proof, Sighting
from e2e.truth.proofs import Json, bad_partitions, lack_of_facts, lack_of_page, sentence
from e2e.truth.world import World
from support.prometheus.prometheus_server import Prometheus
from support.service.karrot_service import Service

ITSELF: Final = "Karrot itself"
"""The name of alerts that are about no group."""

_MOST_PROOFS = 8
_PAUSE_BETWEEN_FIRINGS_S = 16


class Observer:
    """What Karrot says, from the start of its thread to `finish`."""

    def __init__(self, world: World, service: Service) -> None:
        self._world = world
        self._service = service
        self.sightings: dict[str, Sighting] = defaultdict(Sighting)
        self.silent_s = 0.0
        """The longest time without an answer of Karrot."""
        self.polls_s = ""
        """The seconds of polls. If they are longer than the interval, the machine is too busy for the limits."""

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
        polls = ("avg", "max")
        asked = (f"max({each}_over_time(karrot_watch_poll_seconds[2h]))" for each in polls)
        self.polls_s = " / ".join(f"{prometheus.number(each) or 0:.1f}" for each in asked)
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
            sighting.sentence = sentence(self._page(name)) or "no sentence"

    def _cases(self) -> Iterable[Case]:
        return tuple(self._world.cases.values())

    def _page(self, group: str) -> str:
        return self._service.get(f"/group?{_asked(group)}").body.decode()

    def _lack(self, group: str, proof: Proof, *, is_end: bool = False) -> str:
        """Say what the proof lacks; nothing if it is complete."""
        answer = self._service.get(f"/api/v1/group?{_asked(group)}")
        if answer.status != 200:
            return f"the API answers {answer.status}"
        bad = bad_partitions(answer.json)
        return lack_of_facts(bad, proof, self._world.committed(group), is_end=is_end) or lack_of_page(
            self._page(group), bad, proof, self._world.end
        )


def _asked(group: str) -> str:
    return urlencode({"cluster": CLUSTER, "consumer": group})
