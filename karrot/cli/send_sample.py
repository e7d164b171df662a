"""``karrot send-sample`` and ``forget-cluster``: post events to Karrot as Burrow does."""

import sys
import time
import uuid
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from karrot.cli.errors import NotDone, valid
from karrot.cli.options import credentials, karrot_option, secret
from karrot.cli.print_table import safe
from karrot.event import TEST_CLUSTERS, LagEvent, OffsetSample, PartitionLag

if TYPE_CHECKING:
    from karrot.http_client import HttpClient


ACCEPTED = 202

_REDIRECTED = "the answer is a redirect, which Burrow would follow without the event: give the address it leads to"
_REMEDIES = {
    **dict.fromkeys((301, 302, 303, 307, 308), _REDIRECTED),
    400: "Karrot refused the event: check whether a proxy on the way to Karrot changes the body",
    401: "the credentials are missing or wrong: give --user and set KARROT_BURROW_PASSWORD, or set KARROT_BURROW_TOKEN",
    404: "there is no /burrow at this address: check that it is Karrot's address",
    503: "Karrot cannot store events now: Karrot's log and, with the API token, /readyz give the reason",
}

_SENDS_S = 120  # Burrow repeats every verdict within a minute
_WINDOW_MS = 9 * 60_000
"""The duration of a window of ten commits, one commit each minute."""


address_option = karrot_option(
    "url", required=True, help="Address of Karrot, such as http://karrot:5000.  [default: KARROT_URL]"
)
user_option = click.option(
    "--user",
    help="User name for Basic authentication. The password comes from KARROT_BURROW_PASSWORD (or "
    "KARROT_BURROW_PASSWORD_FILE).",
)


@click.command("send-sample")
@address_option
@user_option
@click.option("--count", type=click.IntRange(1, 10_000), default=1, help="Number of groups.")
@click.option("--status", type=click.Choice(["OK", "WARN", "ERR"]), default="WARN", help="Status of the groups.")
def send_sample(url: str, user: str | None, count: int, status: str) -> None:
    """Post sample events as Burrow does, and print the answers.

    Without --user, the command sends the token in KARROT_BURROW_TOKEN (or KARROT_BURROW_TOKEN_FILE) as a Bearer token.
    The exit code is 1 if Karrot does not accept an event.
    """
    from karrot.http_client import HttpClient

    headers = valid(partial(credentials, user))
    with HttpClient(address(url)) as client:
        for number in range(1, count + 1):
            post(client, _event(f"sample-group-{number}", status, time.time_ns() // 1_000_000), headers, status)


def _event(group: str, status: str, now_ms: int) -> LagEvent:
    """Make an event as Burrow v1.9.5 sends it. If the group is not OK, two of its six partitions are bad."""
    bad = () if status == "OK" else (_partition(0, status, now_ms), _partition(3, status, now_ms))
    largest = bad[0] if bad else _partition(0, status, now_ms)
    return LagEvent(
        cluster=TEST_CLUSTERS[0],
        consumer=group,
        status_text=status,
        total_lag=sum(each.current_lag or 0 for each in bad or (largest,)),
        observed_at_ms=now_ms,
        incident_id=str(uuid.uuid4()) if bad else None,
        incident_start=datetime.fromtimestamp((now_ms - _WINDOW_MS) // 1000, UTC) if bad else None,
        complete=1.0,
        partition_count=6,
        max_lag=largest,
        partitions=bad,
    )


def _partition(number: int, status: str, now_ms: int) -> PartitionLag:
    """Make a partition. With WARN, its lag grows and its offset moves. With ERR, its offset does not move (STALL)."""
    read = {"OK": 900, "WARN": 600, "ERR": 0}[status]
    return PartitionLag(
        topic="sample-topic",
        partition=number,
        status_text="STALL" if status == "ERR" else status,
        current_lag=1000 - read,
        start=_commit(now_ms - _WINDOW_MS - 1000, offset=5000, lag=100),
        end=_commit(now_ms - 1000, offset=5000 + read, lag=1000 - read),
        owner="/127.0.0.1",
        client_id="karrot-send-sample",
        complete=1.0,
    )


def _commit(at_ms: int, *, offset: int, lag: int) -> OffsetSample:
    return OffsetSample(offset, at_ms, observed_at_ms=at_ms // 1000 * 1000, lag=lag)


@click.command("forget-cluster", short_help="Forget a cluster that is gone.")
@click.argument("cluster")
@address_option
@user_option
@click.option("--yes", is_flag=True, help="Also forget a cluster that still sends.")
def forget_cluster(cluster: str, url: str, user: str | None, *, yes: bool) -> None:
    """Make Karrot forget a cluster that sends no events any more: its groups, and when it was heard.

    The cluster comes back with its next event. So without --yes, the command refuses a cluster that has sent an event
    in the last two minutes. It reads the groups with the token in KARROT_API_TOKEN (or KARROT_API_TOKEN_FILE), and
    posts their deletion as `karrot send-sample` posts a sample, with the same credentials. The exit code is 1 if Karrot
    does not know the cluster, if the cluster still sends, or if Karrot does not accept a deletion.
    """
    from karrot.api.bodies import Heartbeat
    from karrot.doctor.reader_helpers import read_groups, read_samples
    from karrot.http_client import HttpClient, RequestFailed
    from karrot.reporters.prometheus.group_metrics import label_value

    if not cluster:  # from an unset shell variable; an empty name would list the groups of all clusters
        raise click.UsageError("Name the cluster.")
    headers, token = valid(partial(credentials, user)), valid(partial(secret, "KARROT_API_TOKEN"))
    with HttpClient(address(url), token=token) as client:
        try:
            groups = read_groups(client, cluster, sys.maxsize)[0]
            now = client.read(Heartbeat, "/heartbeat").time
            heard = [] if groups else read_samples(client, ["karrot_last_event_timestamp_seconds"])
        except RequestFailed as error:
            raise NotDone(str(error)) from None
        if not groups and not any(each.value and each.labels.get("cluster") == label_value(cluster) for each in heard):
            raise NotDone(f"Karrot knows no cluster {cluster!r}: check its name on the home page")
        age = min(((now - each.last_event_at).total_seconds() for each in groups if each.last_event_at), default=1e9)
        if age < _SENDS_S and not yes and cluster not in TEST_CLUSTERS:
            raise NotDone(
                f"{cluster!r} still sends: its newest event came {age:.0f} s ago, and the next one brings it back. "
                f"Stop its Burrow or watch, and try again after {_SENDS_S} s, or add --yes"
            )
        for group in [each.consumer for each in groups] or ["karrot-forget-cluster"]:
            event = LagEvent(cluster, group, "NOTFOUND", total_lag=None, observed_at_ms=0)
            post(client, event, headers, "deleted")


def address(url: str) -> str:
    """Return Karrot's address without the webhook's path."""
    from karrot import render

    return valid(partial(render.webhook, url)).removesuffix("/burrow")


def post(client: "HttpClient", event: LagEvent, headers: dict[str, str], what: str) -> None:
    """Post an event, and print Karrot's answer. End the command if Karrot did not accept the event."""
    from karrot.burrow.payload import to_wire
    from karrot.http_client import RequestFailed

    try:
        answer = client.post("/burrow", to_wire(event), headers)
    except RequestFailed as error:
        raise NotDone(str(error)) from None
    reply = f"{answer.status} {answer.body.decode(errors='replace').strip()}"
    if answer.status != ACCEPTED:
        raise NotDone(f"{reply}\n{_REMEDIES.get(answer.status, '')}".strip())
    click.echo(f"{safe(event.cluster)} {safe(event.consumer)} {what}: {reply}")
