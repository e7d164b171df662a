"""Lists the problems that Karrot knows: the runbook of each, and what to do about each code of a refused request.

The pages, the API and `karrot doctor` take both from here. A runbook has the name of its alert.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

RESYNC, WATCH = "resync", "watch"
"""What the leading worker does besides delivery, by the names that the log, ``/readyz`` and the pages use."""

REFUSED_LATELY_S = 900
"""Requests that were refused no longer ago than this are a problem of now."""

KnownProblem = Literal[
    "partition stopped",
    "partition stalled",
    "partition went back",
    "partition not listed",
    "catching up",
    "too slow",
    "one partition",
    "group overdue",
    "Burrow behind",
    "Burrow silent",
    "only unhealthy verdicts",
    "log not writable",
    "log damaged",
    "events refused",
    "too many groups",
    "groups left out of CloudWatch",
    "values dropped",
    "cloudwatch failing",
    "resync failing",
    "watch failing",
    "reporter failing",
    "Karrot not scraped",
]

RUNBOOKS: Mapping[KnownProblem, str] = {
    "partition stopped": "KarrotPartitionStopped",
    "partition stalled": "KarrotPartitionStopped",
    "partition went back": "KarrotConsumerError",  # the one that explains REWIND
    "partition not listed": "KarrotConsumerError",
    "catching up": "KarrotConsumerLagGrowing",
    "too slow": "KarrotConsumerLagGrowing",
    "one partition": "KarrotConsumerLagGrowing",
    "group overdue": "KarrotConsumerVanished",
    "Burrow behind": "KarrotBurrowLagging",
    "Burrow silent": "KarrotBurrowSilent",
    "only unhealthy verdicts": "KarrotOnlyUnhealthyVerdicts",
    "log not writable": "KarrotLogNotWritable",
    "log damaged": "KarrotLogDamaged",
    "events refused": "KarrotRejectingEvents",
    "too many groups": "KarrotSeriesDropped",
    "groups left out of CloudWatch": "KarrotCloudWatchOverCap",
    "values dropped": "KarrotReporterDropping",
    "cloudwatch failing": "KarrotCloudWatchRefusing",
    "resync failing": "KarrotBurrowSilent",  # Burrow does not answer Karrot's questions
    "watch failing": "KarrotWatchSilent",
    "reporter failing": "KarrotReporterBacklog",
    "Karrot not scraped": "KarrotAbsent",
}
"""The runbook for each problem that a page shows or `karrot doctor` finds."""

_FAILING: Mapping[str, KnownProblem] = {
    "cloudwatch": "cloudwatch failing",
    RESYNC: "resync failing",
    WATCH: "watch failing",
}


def runbook_of_failing(name: str) -> str:
    """The runbook for a reporter, resync or watch that fails."""
    return RUNBOOKS[_FAILING.get(name, "reporter failing")]


class Code(NamedTuple):
    """A stable code, which is the word in the log too. ``remedy`` says what to do.

    What `/burrow` answers with is also a label: `karrot.telemetry.EVENTS_REJECTED` lists those.
    """

    status: int
    title: str
    remedy: str


CODES: dict[str, Code] = {
    "invalid_json": Code(
        400,
        "The body is not JSON",
        "Post with the template that `karrot burrow-config` prints. Burrow itself sends such a body when a value "
        "cannot be encoded.",
    ),
    "not_an_object": Code(
        400,
        "The body is JSON, but not an object",
        'Post one event per request, as {"Event": {...}}: `karrot burrow-config` prints the template.',
    ),
    "unsupported_template": Code(
        400,
        "The body comes from a template that Burrow ships",
        "Set template-open and template-close in burrow.toml to a file that holds only "
        '{"Event": {{ jsonencoder . }}}: `karrot burrow-config` prints both.',
    ),
    "invalid_field": Code(
        400,
        "A field has a wrong type or value",
        "`path` names the field or the parameter; /openapi.json says what it may be. If Burrow sent it, a bug report "
        "with the body is welcome.",
    ),
    "invalid_text": Code(
        400,
        "A text cannot be written as UTF-8",
        "Lone surrogates are refused. Rename the consumer group, or mend the program that wrote the body.",
    ),
    "incomplete_body": Code(
        408,
        "The body did not arrive whole",
        "The client left or was too slow. Nothing was stored; look at the network between.",
    ),
    "bad_request": Code(400, "The request cannot be understood", "Compare it with /openapi.json."),
    "unauthorized": Code(
        401,
        "Valid credentials are needed",
        "For /burrow: username and password in burrow.toml as in KARROT_BURROW_USERNAME and KARROT_BURROW_PASSWORD, "
        "or a Bearer token in its headers. Elsewhere: KARROT_API_TOKEN as Bearer token or as Basic password.",
    ),
    "not_found": Code(404, "There is nothing here", "The routes are listed in /openapi.json, the groups at /."),
    "method_not_allowed": Code(405, "The method does not fit the route", "The header Allow names those that do."),
    "length_required": Code(
        411, "Content-Length is missing", "Send the body with its length; Burrow always does, so look for a proxy."
    ),
    "too_large": Code(
        413, "The body is larger than allowed", "Raise KARROT_MAX_BODY; a bad partition takes about 400 bytes."
    ),
    "unsupported_media_type": Code(
        415, "Encoded bodies are not taken", "Send the body as it is, without Content-Encoding."
    ),
    "internal_error": Code(
        500,
        "Karrot failed",
        "Look for the traceback in Karrot's log and report it with the request. The body of an event is kept at "
        "/api/v1/rejects.",
    ),
    "overloaded": Code(
        503,
        "The request waited too long for its turn",
        "If it lasts, use a faster disk, raise KARROT_WORKERS, or set a longer interval in burrow.toml. Nothing was "
        "stored.",
    ),
    "log_unavailable": Code(
        503,
        "The event log cannot be used",
        "Look at /readyz: it says why. Most often the disk is full. Nothing was stored.",
    ),
    "unconfirmed": Code(
        503,
        "The disk did not answer in time",
        "Look at the disk. Until it answers, it is not known whether the event is stored. If in doubt, post it again: "
        "an event that is stored twice does no harm.",
    ),
}
