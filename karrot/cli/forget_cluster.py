"""``karrot forget-cluster``: posts to Karrot that all groups of a cluster are deleted."""

import sys
from functools import partial

import click

from karrot.cli.auth_headers import credentials, secret
from karrot.cli.errors import NotDone, valid
from karrot.cli.send_sample import address, address_option, post, user_option
from karrot.event import LagEvent


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
    from karrot.doctor.reading import read_groups, read_samples
    from karrot.http_client import HttpClient, RequestFailed
    from karrot.reporters.prometheus.group_metrics import label_value

    if not cluster:  # an unset variable: the groups of all clusters would be listed
        raise click.UsageError("Name the cluster.")
    headers, token = valid(partial(credentials, user)), valid(partial(secret, "KARROT_API_TOKEN"))
    with HttpClient(address(url), token=token) as client:
        try:
            groups = [each.consumer for each in read_groups(client, cluster, sys.maxsize)[0]]
            heard = [] if groups else read_samples(client, ["karrot_last_event_timestamp_seconds"])
        except RequestFailed as error:
            raise NotDone(str(error)) from None
        if not groups and not any(each.value and each.labels.get("cluster") == label_value(cluster) for each in heard):
            raise NotDone(f"Karrot knows no cluster {cluster!r}: check its name on the home page")
        for group in groups or ["karrot-forget-cluster"]:
            event = LagEvent(cluster, group, "NOTFOUND", total_lag=None, observed_at_ms=0)
            post(client, event, headers, "deleted")
