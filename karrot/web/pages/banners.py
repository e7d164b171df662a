"""What is wrong between Burrow, Karrot and where its numbers go: each with the way out. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from karrot.eventlog.base import ReporterState
from karrot.text import count, counted, duration, some, visible
from karrot.web.pages.troubles import RUNBOOKS, runbook_of_failing
from karrot.web.problems import CODES

__all__ = ["Banner", "BannerInputs", "Heard", "banners"]

_ENOUGH = 10
"""So many verdicts WARN or ERR without one that a group is well say that the others are not sent."""

_LONGEST_ERROR = 300


class Heard(NamedTuple):
    """When a cluster's Burrow was last heard, ``None``: never, though it is expected."""

    cluster: str
    seconds: float | None
    silent: bool


class Banner(NamedTuple):
    """A sentence that says what is wrong, and one that says what to do; code stands between backticks in both.

    ``runbook`` names the runbook that fits. ``page`` has more: it is ``rejects`` or the name of a reporter.
    """

    kind: Literal["err", "warn"]
    wrong: str
    remedy: str
    runbook: str
    page: str = ""


class BannerInputs(NamedTuple):
    """What is looked at. ``refused`` counts codes of the last minutes, ``kinds`` webhooks since the log began."""

    fault: str | None = None
    heard: Sequence[Heard] = ()
    kinds: Mapping[str, float] = {}
    refused: Mapping[str, int] = {}
    refused_within_s: int = 0
    groups: int = 0
    max_groups: int = 0
    failing: Sequence[ReporterState] = ()
    reporters: Sequence[str] = ()
    left_out: Mapping[str, str] = {}
    burrow_behind: Sequence[str] = ()


def banners(seen: BannerInputs) -> list[Banner]:
    """The worst first."""
    found = [
        *_not_writable(seen),
        *_silent(seen),
        *_burrow_behind(seen),
        *_failing(seen),
        *_refused(seen),
        *_only_bad(seen),
        *_limits(seen),
    ]
    return sorted(found, key=lambda banner: banner.kind != "err")


def _not_writable(seen: BannerInputs) -> Iterator[Banner]:
    if seen.fault is not None:
        yield Banner(
            "err",
            f"Karrot cannot store events: {visible(seen.fault)}",
            "Burrow is answered 503 and does not repeat. The disk of `KARROT_DATA_DIR` needs room and rights.",
            RUNBOOKS["log not writable"],
        )


def _silent(seen: BannerInputs) -> Iterator[Banner]:
    silent = [each for each in seen.heard if each.silent]
    if not silent:
        return
    names = some([visible(each.cluster) for each in silent])
    longest = max((each.seconds for each in silent if each.seconds is not None), default=None)
    since = "was never heard" if longest is None else f"has been silent for {duration(longest)}"
    yield Banner(
        "err",
        f"Burrow {since} ({names}): what is shown of its groups is old, and they leave this page.",
        "Does Burrow run, and has it its ZooKeeper? From its host: `karrot send-sample --url` with the address of this "
        "page. `karrot doctor` looks at both ends.",
        RUNBOOKS["Burrow silent"],
    )


def _burrow_behind(seen: BannerInputs) -> Iterator[Banner]:
    if seen.burrow_behind:
        yield Banner(
            "warn",
            f"The Burrow of {some([visible(name) for name in seen.burrow_behind])} itself is behind on "
            "`__consumer_offsets`: every lag it tells of is old.",
            "Give Burrow more CPU, or `workers` in the storage section of its burrow.toml.",
            RUNBOOKS["Burrow behind"],
        )


def _failing(seen: BannerInputs) -> Iterator[Banner]:
    for state in seen.failing:
        said = visible((state.last_error or "it does not say why")[:_LONGEST_ERROR])
        of_ours = state.name in seen.reporters
        yield Banner(
            "err",
            f"{visible(state.name)} is failing: {said}",
            "It tries again by itself and loses nothing while the log keeps it." if of_ours else "It tries again.",
            runbook_of_failing(state.name),
            state.name if of_ours else "",
        )


def _refused(seen: BannerInputs) -> Iterator[Banner]:
    for code, number in seen.refused.items():
        known = CODES.get(code)
        bodies = counted(number, "body was", "bodies were")
        yield Banner(
            "warn",
            f"{bodies} refused in the last {duration(seen.refused_within_s)}: `{code}`.",
            known.remedy if known else "",
            RUNBOOKS["events refused"],
            "rejects",
        )


def _only_bad(seen: BannerInputs) -> Iterator[Banner]:
    if not seen.kinds.get("observation") and seen.kinds.get("incident", 0) >= _ENOUGH:
        yield Banner(
            "warn",
            "Only WARN and ERR ever came, so groups that are well are not known.",
            "Set `threshold = 1` in the notifier's section of burrow.toml: its default is 2. "
            "`karrot burrow-config` prints the section.",
            RUNBOOKS["only unhealthy verdicts"],
        )


def _limits(seen: BannerInputs) -> Iterator[Banner]:
    if 0 < seen.max_groups <= seen.groups:
        yield Banner(
            "warn",
            f"There is no room for more groups than these {count(seen.groups)}: others are logged, not shown.",
            "Raise `KARROT_MAX_CONSUMERS`, or keep groups out by a denylist in Burrow.",
            RUNBOOKS["too many groups"],
        )
    for name, number in seen.left_out.items():
        yield Banner(
            "warn",
            f"{visible(name)} leaves {visible(number)} groups out.",
            f"Raise `KARROT_{name.upper()}_MAX_GROUPS`, or choose groups with `_INCLUDE` and `_EXCLUDE`.",
            RUNBOOKS["groups left out of CloudWatch"],
            name,
        )
