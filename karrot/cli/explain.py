"""``karrot explain``: print why a group is in its state, with the evidence and the next commands."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from karrot.cli.errors import NotDone, read_answer, valid
from karrot.cli.options import LOCAL_KARROT, json_option, karrot_option, secret
from karrot.cli.print_table import print_lines, safe
from karrot.text import count, duration, moment


@click.command(short_help="Print the cause of a group's status.")
@click.argument("group")
@click.option("--cluster", help="Name of the cluster. Required if several clusters have the group.")
@karrot_option("url", default=LOCAL_KARROT, help="Address of Karrot, or set KARROT_URL.")
@json_option("Print one line of JSON.")
def explain(group: str, cluster: str | None, url: str, *, as_json: bool) -> None:
    """Print why GROUP is in its state, with the evidence, what is not known, and the next commands.

    The command asks Karrot, and sends the token in KARROT_API_TOKEN (or KARROT_API_TOKEN_FILE). It prints the next
    commands, but does not run them. The exit code is 1 if Karrot does not answer, or knows no such group or several.
    It is 2 for wrong options.
    """
    from karrot.diagnosis.explanations import Explanation
    from karrot.http_client import HttpClient, RequestFailed

    query = {"consumer": group} if cluster is None else {"consumer": group, "cluster": cluster}
    try:
        with HttpClient(url, token=valid(partial(secret, "KARROT_API_TOKEN"))) as client:
            answer = client.get("/api/v1/explain", query)
    except RequestFailed as error:
        raise NotDone(str(error)) from None
    found = read_answer(answer, Explanation)
    print_lines([answer.body.decode()] if as_json else _lines(found, url))


def _lines(found: Any, url: str) -> Iterator[str]:
    since = "" if found.since is None else f" since {moment(found.since.replace(microsecond=0))}"
    yield safe(f"{found.status} {found.consumer} on {found.cluster}: {found.cause}{since}")
    yield safe(found.sentence)
    behind = "" if found.lag_seconds is None else f", behind by {duration(found.lag_seconds)}"
    sure = f" ({found.lag_seconds_kind.replace('_', ' ')})" if behind and found.lag_seconds_kind else ""
    yield f"Lag: {'unknown' if found.lag is None else count(found.lag)}{behind}{sure}"
    runbook = f"{url.rstrip('/')}/runbooks/{found.runbook}" if found.runbook else ""
    more = [("Not known", each) for each in found.missing] + [("Check", found.check), ("Runbook", runbook)]
    yield from (f"- {safe(each)}" for each in found.evidence)
    yield from (f"{name}: {safe(text)}" for name, text in more if text)
    yield from (f"\n# {each.purpose}\n{safe(each.command)}" for each in found.commands)
