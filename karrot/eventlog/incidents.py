"""Decides when an incident of a group begins and ends. Pure.

Burrow gives an incident one id from the first verdict worse than OK to the first OK. It never repeats a lost close,
forgets ids in a failover and reports some incidents only by their end. So the log has its own rule: the first event
with a new id opens an incident; its close, another id, an observation or a deletion ends it.
"""

from karrot.event import Kind, LagEvent
from karrot.eventlog.base import IncidentState

REMEMBERED = 8
"""How many ids of a group are remembered, so that late events neither reopen an incident nor count it again."""


def after(incident: IncidentState, event: LagEvent) -> IncidentState:
    """The group's incident once ``event`` is its newest.

    A verdict without an id (Burrow's REST API, Kafka) attaches to the open incident. An incident that fell silent
    resumes with its id: it is the same one, and it was counted.
    """
    match event.kind:
        case Kind.OBSERVATION | Kind.DELETED:
            return _ended(incident)
        case Kind.CLOSE:
            return _closed(incident, event)
        case Kind.INCIDENT if event.incident_id is not None:
            return _opened(incident, event, event.incident_id)
        case _:
            return incident


def _ended(incident: IncidentState) -> IncidentState:
    return incident._replace(open_id=None, since_ms=None)


def _closed(incident: IncidentState, event: LagEvent) -> IncidentState:
    # The group is well now, whatever the id. A new id is counted: of an incident below the notifier's threshold Burrow
    # sends only the close.
    return _ended(_opened(incident, event, str(event.incident_id)))


def _opened(incident: IncidentState, event: LagEvent, new_id: str) -> IncidentState:
    if new_id in incident.remembered:
        return incident
    start = event.incident_start
    return IncidentState(
        open_id=new_id,
        since_ms=event.observed_at_ms if start is None else int(start.timestamp() * 1000),
        total=incident.total + 1,
        remembered=(*incident.remembered, new_id)[-REMEMBERED:],
    )
