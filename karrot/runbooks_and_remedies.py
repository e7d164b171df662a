"""Lists the runbook of each problem that Karrot knows, and the remedy for each problem code.

The pages, the API and `karrot doctor` use the runbooks and the remedies. A runbook has the name of an alert. The
module that reads changed files again, `karrot.reload_changed_files`, has the codes of its problems.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

RESYNC, WATCH = "resync", "watch"
"""The names of the leader's two duties in addition to delivery. The log, ``/readyz`` and the pages use these names."""

DOCS_URL = "https://github.com/Lowess/karrot/blob/main/docs"
"""The address of the documentation. Links to pages outside this installation start with it."""

REFUSED_LATELY_S = 900
"""A refused request counts as a current problem for this many seconds."""

_FAILING: Mapping[str, str] = {
    "cloudwatch": "KarrotCloudWatchRefusing",
    "notify": "KarrotNotifyFailing",
    RESYNC: "KarrotResyncFailing",
    WATCH: "KarrotWatchSilent",
}


def runbook_of_failing(name: str) -> str:
    return _FAILING.get(name, "KarrotReporterBacklog")


TablesProblem = Literal["tables_unavailable", "tables_refused", "history_too_slow", "history_too_large"]

TABLES_PROBLEMS: Mapping[TablesProblem, str] = {
    "tables_unavailable": "Check the network between Karrot and S3, the Region, and AWS_ENDPOINT_URL_S3 if it is set.",
    "tables_refused": "Check the name of the bucket, the credentials, and the rights s3:ListBucket and s3:GetObject.",
    "history_too_slow": "Use karrot history for fewer days, or with a longer --timeout. If the tables are in S3, "
    "Karrot goes on to copy their files for the pages: load the page again in ten seconds.",
    "history_too_large": "Use karrot history for fewer days, for one group, or with a larger --granularity.",
}
"""Maps each failure code of a query of the pipeline's tables to its remedy. The codes are stable."""


class Code(NamedTuple):
    """The HTTP status, title and remedy of a problem. The code itself is stable, and the log uses it too."""

    status: int
    title: str
    remedy: str


_OUR_TEMPLATE = (
    'Set template-open and template-close in burrow.toml to a file that contains only {"Event": {{ jsonencoder . }}}. '
    "`karrot burrow-config` prints the settings and the file. If another program sent the body, Karrot's log has its "
    "address."
)

CODES: dict[str, Code] = {
    "empty_body": Code(
        400,
        "The body is empty",
        f"{_OUR_TEMPLATE} If the file is right, set method-open and method-close to POST: many proxies remove the body "
        "of a DELETE.",
    ),
    "not_utf8": Code(400, "The body is not UTF-8", f"Karrot's template writes only UTF-8. {_OUR_TEMPLATE}"),
    "invalid_json": Code(
        400,
        "The body begins like the output of Karrot's template, but it is not JSON",
        "Compare the template file with the output of `karrot burrow-config --template`. If they are equal, a proxy "
        "changed the body, or Burrow could not encode a value and left it out.",
    ),
    "not_an_object": Code(400, "The body is JSON, but not an object", _OUR_TEMPLATE),
    "unsupported_template": Code(400, "The body is not the output of Karrot's template", _OUR_TEMPLATE),
    "invalid_field": Code(
        400,
        "A field has a wrong type or value",
        "If the message names a limit, see docs/reference/bounds.md. Otherwise, compare the field or parameter in "
        "`path` with /openapi.json. If it is a field of Burrow and the template is Karrot's, please report a bug with "
        "the body.",
    ),
    "invalid_text": Code(
        400,
        "A text has half of a surrogate pair",
        "Correct the program that wrote the body. Karrot's template never writes such a text.",
    ),
    "incomplete_body": Code(
        408,
        "The body did not arrive completely",
        "Check the network between the client and Karrot. The client disconnected or was too slow. Nothing was stored.",
    ),
    "too_large": Code(
        413, "The body is larger than KARROT_MAX_BODY", "Raise KARROT_MAX_BODY. A bad partition takes about 400 bytes."
    ),
    "length_required": Code(
        411,
        "Content-Length is missing",
        "Send the header Content-Length. Burrow always sends it, so another program sent the request, or a proxy "
        "removed the header.",
    ),
    "unsupported_media_type": Code(
        415, "Karrot does not accept encoded bodies", "Send the body without Content-Encoding."
    ),
    "unauthorized": Code(
        401,
        "The request needs valid credentials",
        "For /burrow: set username and password in burrow.toml to KARROT_BURROW_USERNAME and KARROT_BURROW_PASSWORD, "
        "or send KARROT_BURROW_TOKEN as a Bearer token in the headers. For other routes: send KARROT_API_TOKEN as a "
        "Bearer token or as the password of Basic authentication.",
    ),
    "overloaded": Code(
        503,
        "The request waited too long for its turn",
        "If this continues, use a faster disk, raise KARROT_WORKERS, or set a longer interval (with Burrow, in "
        "burrow.toml). Nothing was stored.",
    ),
    "log_unavailable": Code(
        503,
        "The event log cannot be used",
        "Look for the reason in Karrot's log, or at /readyz with the API token. It is most often a full disk, or a "
        "PostgreSQL server that is away. Nothing was stored.",
    ),
    "unconfirmed": Code(
        503,
        "The disk did not answer in time",
        "Check the disk, or the PostgreSQL server and its synchronous standby. Karrot does not know yet whether the "
        "event is stored. If in doubt, post the event again: an event that is stored twice does no harm.",
    ),
    "internal_error": Code(
        500,
        "Karrot failed",
        "Find the traceback in Karrot's log. Report the traceback and the request. For the body of an event, see "
        "/api/v1/rejects.",
    ),
    "bad_request": Code(400, "Karrot does not understand the request", "Compare the request with /openapi.json."),
    "not_found": Code(
        404,
        "Nothing was found at this address",
        "See /openapi.json for the routes, and / for the groups. Burrow must post to /burrow.",
    ),
    "method_not_allowed": Code(
        405,
        "The route does not accept this method",
        "Use a method from the header Allow. Burrow must post to /burrow.",
    ),
    "cross_site": Code(
        403,
        "Another site sent the request",
        "Open Karrot at KARROT_EXTERNAL_URL. Behind a proxy, set it to the proxy's URL, and keep the header Host.",
    ),
    "not_judged": Code(404, "watch knows the group, but has not judged it yet", "Ask again after ten of its polls."),
    "too_many_mutes": Code(409, "There are too many mutes", "End some mutes, or use a pattern for several groups."),
}
