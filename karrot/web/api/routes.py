"""Serves ``/api/v1/*`` and ``/openapi.json``, and ``/config`` with the same JSON as the first Karrot."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from glob import escape
from itertools import islice
from secrets import token_hex
from typing import NamedTuple

import msgspec
from flask import Blueprint, Response, jsonify, request, url_for

from karrot import burrow_cut_off, mutes
from karrot.api.bodies import EventLogStatus, GroupDetail, GroupPage, Heartbeat, Mutes, Readiness, Rejects, Reporters
from karrot.diagnosis.explanations import Explanation, explain
from karrot.diagnosis.known_facts import gather
from karrot.event import GroupKey, Kind
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.base import GroupState
from karrot.eventlog.event_log import EventLog
from karrot.render import templates_dir
from karrot.settings import types
from karrot.text import EPOCH, count, duration, visible
from karrot.web.api.answers import event_log_status, group_detail, group_shape, mute_finder, progress, reject_shape
from karrot.web.auth import require_reader
from karrot.web.context import if_readable, web_context
from karrot.web.error_answers import Problem, ProblemBody

STATUSES = ("ERR", "WARN", "OK", "ABANDONED")
"""The statuses of a group, worst first."""

_GROUPS_LIMIT, _EVENTS_LIMIT, _REJECTS_LIMIT = 100, 50, 50
"""The default ``limit`` of groups, recent events and refused bodies in an answer."""

_MOST_LIMIT = 1000
_LONGEST_TEXT, _LONGEST_MUTE_S = 500, 30 * 86_400
_ANSWERS = (GroupPage, GroupDetail, Explanation, Mutes, Reporters, EventLogStatus, Rejects, Readiness, Heartbeat)

routes = Blueprint("api", __name__)
routes.before_request(require_reader)


class GroupFilter(NamedTuple):
    """A filter for groups. ``None`` admits every group.

    ``text`` is a part, in any case, of the name of a group or cluster, or of the other names of a group in ``details``.
    ``starred`` has the admitted groups as `star_of` names them.
    """

    cluster: str | None = None
    status: str | None = None
    text: str | None = None
    details: Mapping[GroupKey, str] = {}
    starred: Collection[str] | None = None

    def among(self, states: Iterable[GroupState]) -> Iterator[GroupState]:
        """Yield the groups that match."""
        text = "" if self.text is None else self.text.casefold()
        for state in states:
            is_there = (self.cluster is None or state.key.cluster == self.cluster) and (
                self.starred is None or star_of(state.key) in self.starred
            )
            names = (*state.key, self.details.get(state.key, ""))
            # A filter by status matches a test group only together with a filter by cluster.
            has_status = self.status is None or (
                state.summary.status_text == self.status and (self.cluster is not None or not state.is_test)
            )
            if is_there and has_status and (not text or any(text in name.casefold() for name in names)):
                yield state


def star_of(key: GroupKey) -> str:
    """``cluster/group``: the name of a group in the address of the home page. A slash in the cluster is escaped."""
    return f"{key.cluster.replace('%', '%25').replace('/', '%2F')}/{key.consumer}"


@routes.get("/api/v1/groups")
def list_groups() -> Response:
    """Answer a page of groups, sorted by key. If more groups follow, ``next`` is the key of the page's last group."""
    log, after, limit = web_context().log, _asked_after(), _asked_limit(_GROUPS_LIMIT)
    cut_off = burrow_cut_off.cut_off(log)
    live = burrow_cut_off.judged(log, log.live(), cut_off)
    start = 0 if after is None else bisect_right(live, after, key=lambda state: state.key)
    found = list(islice(asked_filter().among(islice(live, start, None)), limit + 1))
    page, has_more = found[:limit], len(found) > limit
    mute_of = mute_finder(web_context())
    place = msgspec.json.encode(page[-1].key).decode() if has_more else None
    return _json(GroupPage([group_shape(state, mute_of(state.key), cut_off) for state in page], place))


@routes.get("/api/v1/group")
def show_group() -> Response:
    """Answer one group with its partitions and recent events."""
    log = web_context().log
    key = asked_key()
    state = log.group(key)
    if state is None:
        raise no_live_group(log, key)
    limit = _asked_limit(_EVENTS_LIMIT)
    cut_off = burrow_cut_off.cut_off(log)
    [judged] = burrow_cut_off.judged(log, [state], cut_off)
    listed = if_readable(lambda: log.listed(judged), None)
    muted = mute_finder(web_context())(key)
    return _json(group_detail(judged, muted, cut_off, listed, if_readable(lambda: log.recent([key], limit)[0], None)))


@routes.get("/api/v1/mutes")
def list_mutes() -> Response:
    """Answer all mutes."""
    return _json(Mutes(mutes.read(web_context().log)))


@routes.post("/api/v1/mutes")
def begin_mute() -> Response:
    """Mute the groups that match a pattern."""
    try:
        mute = _begun(msgspec.json.decode(request.get_data(), type=dict[str, str]))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Problem("invalid_field", f"The body must be a JSON object of strings, up to 16 KiB: {error}.") from None
    return _json(Mutes([mute], sum(mute.names(state.key) for state in web_context().log.live())))


@routes.delete("/api/v1/mutes")
def end_mute() -> Response:
    """End a mute now."""
    return _json(Mutes([_ended(request.args.get("id", ""))]))


@routes.post("/mute")
def mute_by_form() -> tuple[str, int, dict[str, str]]:
    """Begin or end the mute of one group, and show its page. The page's address is new, so that no cache has it."""
    key, form = asked_key(), request.form.to_dict()
    wish = form | {"cluster": key.cluster, "pattern": escape(key.consumer)}
    mute = _ended(form["end"]) if "end" in form else _begun(wish)
    return "", 303, {"Location": url_for("pages.show_group", **key._asdict(), mute="-".join([mute.id, *form]))}


@routes.get("/api/v1/explain")
def explain_group() -> Response:
    """Answer why a group is in its state. The cluster may be missing if only one cluster has the group."""
    context, key = web_context(), asked_key(*(["consumer"] if "cluster" not in request.args else []))
    if not key.cluster:
        clusters = [each.key.cluster for each in context.log.live() if each.key.consumer == key.consumer]
        if len(clusters) > 1:
            detail = f"Several clusters have this group: {', '.join(map(visible, clusters))}. Name one."
            raise Problem("invalid_field", detail, path="cluster")
        poll = watch_data_of_groups.read(context.log)
        key = GroupKey(clusters[0] if clusters else poll.cluster if poll else "", key.consumer)
    state = context.log.group(key)
    if state is None:
        raise no_live_group(context.log, key)
    return _json(explain(gather(context.log, state), context.effective_settings()))


@routes.get("/api/v1/reporters")
def list_reporters() -> Response:
    """Answer the progress of each reporter, and the replica that leads."""
    context = web_context()
    return _json(Reporters(progress(context), context.log.leader()))


@routes.get("/api/v1/event-log")
def show_event_log() -> Response:
    """Answer the state of the event log, the replica that leads, and the database server."""
    return _json(event_log_status(web_context().log))


@routes.get("/api/v1/rejects")
def list_rejects() -> Response:
    """Answer the newest refused bodies."""
    return _json(Rejects([reject_shape(reject) for reject in web_context().log.rejects(_asked_limit(_REJECTS_LIMIT))]))


@routes.get("/openapi.json")
def openapi() -> Response:
    """Answer the OpenAPI document of all routes. Its schemas come from the classes of the answers."""
    described = msgspec.json.decode((templates_dir() / "web" / "openapi.json").read_bytes())
    described["info"]["version"] = web_context().version
    _, described["components"]["schemas"] = msgspec.json.schema_components(
        (*_ANSWERS, ProblemBody), ref_template="#/components/schemas/{name}"
    )
    return _json(described)


@routes.get("/config")
def config() -> Response:
    """Answer the settings in effect, with redacted secrets."""
    return jsonify(status="success", config=dict(web_context().effective_settings()))


def no_live_group(log: EventLog, key: GroupKey) -> Problem:
    """Make the problem for a group that is not live: what `watch` knows of it, or else its last stored event."""
    if watched := if_readable(lambda: watch_data_of_groups.live(log, key), None):
        told = f"`watch` knows the group (state {watched.state}), but has not judged it yet. The first verdict comes "
        return Problem("not_judged", told + "after five to ten polls that see a committed offset.")
    newest = next(iter(if_readable(lambda: log.recent([key], 1)[0], ())), None)
    detail = "No live consumer group has this name, and no stored event names it."
    if newest is not None:
        age, event = duration((log.log_time_ms() - newest.log_time_ms) / 1000), newest.summary
        lag = "an unknown lag" if event.total_lag is None else f"lag {count(event.total_lag)}"
        detail = (
            f"The group was deleted {age} ago."
            if event.kind is Kind.DELETED
            else f"No live consumer group has this name. The last event about it came {age} ago: "
            f"{visible(event.reported_status)} with {lag}. "
            "Karrot lists no group so long after its last event: Burrow or Kafka is away, or the group is gone."
        )
    return Problem("not_found", detail)


def asked_filter(statuses: Sequence[str] = STATUSES) -> GroupFilter:
    """Read the filter from the query string. An empty parameter means no filter."""
    status = request.args.get("status") or None
    if status is not None and status not in statuses:
        raise Problem("invalid_field", f"status must be one of {', '.join(STATUSES)}.", path="status")
    return GroupFilter(request.args.get("cluster") or None, status, request.args.get("q") or None)


def asked_key(*needed: str) -> GroupKey:
    """Read the group's key from the query string."""
    for name in needed or ("cluster", "consumer"):
        if name not in request.args:
            raise Problem("invalid_field", f"The parameter {name} is missing.", path=name)
    return GroupKey(request.args.get("cluster", ""), request.args["consumer"])


def asked_number(name: str, default: int, most: int) -> int:
    """Read a number from 1 to ``most`` from the query string."""
    text = request.args.get(name) or str(default)
    # int(text) accepts "+5", "1_000" and digits of any script, and raises for 5,000 digits.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise Problem("invalid_field", f"{name} must be a whole number from 1 to {most}.", path=name)
    return int(text)


def _begun(wish: Mapping[str, str]) -> mutes.Mute:
    now = EPOCH + timedelta(milliseconds=web_context().clock.wall_ms())
    told = {name: wish.get(name, "") for name in ("cluster", "pattern", "reason")}
    named = GroupKey(told["cluster"], re.sub(r"\[([*?[])\]", r"\1", told["pattern"]))
    is_known = told["pattern"] == escape(named.consumer) and web_context().log.group(named) is not None
    limited = ["reason"] if is_known else told  # the name of a group may be blank, and longer than a text
    if wrong := [name for name in limited if not told[name].strip() or len(told[name]) > _LONGEST_TEXT]:
        raise Problem("invalid_field", f"{wrong[0]} must have 1 to {_LONGEST_TEXT} characters.", path=wrong[0])
    if "[" in re.sub(r"\[!?+\]?+[^\]]*+\]", "", told["pattern"]):
        raise Problem("invalid_field", "pattern has a [ without a ]: write [[] for the character [.", path="pattern")
    try:
        seconds = types.checked(types.duration(1, _LONGEST_MUTE_S), "for", wish.get("for", ""))
    except ValueError as error:
        raise Problem("invalid_field", f"{error}.", path="for") from None
    mute = mutes.Mute(token_hex(4), **told, since=now, until=now + timedelta(seconds=seconds))
    if not mutes.begin(web_context().log, mute):
        raise Problem("too_many_mutes", f"There are {mutes.MOST} mutes already.")
    return mute


def _ended(wanted: str) -> mutes.Mute:
    for mute in mutes.end(web_context().log, lambda mute: mute.id == wanted):
        return mute
    raise Problem("not_found", "No mute has this id. It may have ended.")


def _asked_limit(default: int) -> int:
    return asked_number("limit", default, _MOST_LIMIT)


def _asked_after() -> GroupKey | None:
    if not (text := request.args.get("after")):
        return None
    try:
        return msgspec.json.decode(text, type=GroupKey)
    except msgspec.MsgspecError:
        raise Problem("invalid_field", "after must be the `next` of the previous page.", path="after") from None


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), content_type="application/json")
