"""``karrot forget-cluster``: posts to Karrot that all groups of a cluster are deleted."""

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec

from karrot.cli.auth_headers import credentials, secret
from karrot.cli.errors import NotDone, valid
from karrot.cli.send_sample import address_option, post, user_option
from karrot.event import LagEvent

if TYPE_CHECKING:
    from karrot.doctor.http_get import Web

_PAGE = "1000"


class _Group(msgspec.Struct):
    consumer: str


class _Page(msgspec.Struct):
    groups: list[_Group]
    next: str | None = None


@click.command("forget-cluster", short_help="Forget a cluster that is gone.")
@click.argument("cluster")
@address_option
@user_option
def forget_cluster(cluster: str, url: str, user: str | None) -> None:
    """Make Karrot forget a cluster that sends no events any more: its groups, and when it was heard.

    The cluster comes back with its next event. The command reads the groups with the token in KARROT_API_TOKEN (or
    KARROT_API_TOKEN_FILE), and posts their deletion as `karrot send-sample` posts a sample, with the same credentials.
    The exit code is 1 if Karrot does not know the cluster, or does not accept a deletion.
    """
    from karrot import render
    from karrot.burrow.client import Asking
    from karrot.doctor.http_get import NotTold, Web

    if not cluster:  # an unset variable: the groups of all clusters would be listed
        raise click.UsageError("Name the cluster.")
    address = valid(partial(render.webhook, url))
    headers, token = valid(partial(credentials, user)), valid(partial(secret, "KARROT_API_TOKEN"))
    try:
        with closing(Web(address.removesuffix("/burrow"), asking=Asking(), token=token)) as web:
            groups = _groups(web, cluster)
    except NotTold as error:
        raise NotDone(error.said) from None
    for group in groups:
        event = LagEvent(cluster, group, "NOTFOUND", total_lag=None, observed_at_ms=0)
        post(address, event, headers, "deleted")


def _groups(web: "Web", cluster: str) -> list[str]:
    """The groups of a cluster, or a name that stands for a cluster without groups. Raises `NotTold`."""
    from karrot.doctor.http_get import read_samples
    from karrot.reporters.prometheus.metric_family import label_value

    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = web.read(_Page, "/api/v1/groups", {"limit": _PAGE, "after": after, "cluster": cluster})
        found, after = [*found, *(each.consumer for each in page.groups)], page.next
    heard = [] if found else read_samples(web, ["karrot_last_event_timestamp_seconds"])
    if not found and not any(each.value and each.labels.get("cluster") == label_value(cluster) for each in heard):
        raise NotDone(f"Karrot knows no cluster {cluster!r}: check its name on the home page")
    return found or ["karrot-forget-cluster"]
