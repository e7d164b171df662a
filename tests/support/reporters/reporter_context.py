"""Makes the context that a reporter is built with, over an event log in memory by default."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from karrot import wiring
from karrot.burrow_cut_off import cut_off
from karrot.diagnosis.explanations import explain
from karrot.diagnosis.known_facts import gather
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import Context
from karrot.settings.loading import load
from karrot.settings.options import OPTIONS
from support.manual_clock import ManualClock

_BUILT_IN = ("archive", "cloudwatch", "kafka", "notify", "prometheus", "stdout")
_NAMES = {option.name for option in OPTIONS}


def make_context(
    name: str,
    settings: Mapping[str, str] | None = None,
    *,
    log: EventLog | None = None,
    clock: ManualClock | None = None,
) -> Context:
    """Make the context of a reporter. A built-in reporter gets the settings as options."""
    clock = clock or ManualClock()
    log = log or MemoryEventLog(clock)
    return Context(
        name=name,
        settings=settings or {},
        count=log.count,
        clock=clock,
        log_time_ms=log.log_time_ms,
        recall=partial(log.recall, name),
        remember=partial(log.remember, name),
        cut_off=partial(cut_off, log),
        heard=log.heard,
        event=log.event,
        live=log.live,
        explain=lambda state: explain(gather(log, state)),
        options=options_of(name, settings or {}),
    )


def options_of(reporter: str, texts: Mapping[str, str]) -> Any:
    """The options of a built-in reporter. ``texts`` has its settings without prefix, as users write them."""
    if reporter not in _BUILT_IN:
        return None
    own = dict(texts)
    watch, shown = own.pop("watch", ""), own.pop("reporters", None)  # Karrot derives these two for prometheus
    environ = {"KARROT_REPORTERS": reporter} | ({"KARROT_KAFKA_BOOTSTRAP": "a:9092"} if reporter == "kafka" else {})
    for name, text in own.items():
        prefixed = f"KARROT_{reporter}_{name}".upper()
        environ[prefixed if prefixed in _NAMES else f"KARROT_{name}".upper()] = text
    settings = load(environ, available=_BUILT_IN).settings
    options: Any = wiring.options_of(settings, reporter)
    if reporter == "prometheus":
        return replace(options, watch=watch == "true", reporters=None if shown is None else tuple(shown.split(",")))
    return options
