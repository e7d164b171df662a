"""Checks Burrow's notifiers: whether every event reaches Karrot completely."""

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from karrot.burrow.client import NotifierModule
from karrot.doctor.checks import Check, Problem, check, fault, note, only_if, warn
from karrot.doctor.read_burrow import WEBHOOK_PATH, BurrowSeen, ReadWebhook, admits
from karrot.doctor.reader_helpers import netloc
from karrot.text import counted_plain, redacted, some

_LINES = "burrow.md#why-each-line"
_WRONG = "burrow.md#when-something-is-wrong"
_BURROWS_OWN = re.compile(r"default-(http|slack|email)-?\w*\.tmpl")
_TOKEN = re.compile(r"(?<=[^/]/)[^/\s]{16,}")  # in the path of a webhook of Slack, Teams, Discord and others
_OK, _WARN, _ERR = 1, 2, 3
_NEVER_WAITS, _SHORT, _LONG = 0, 3, 30


@check(success="a notifier posts to Karrot", where="burrow.md#connecting-burrow")
def notifier(seen: BurrowSeen) -> Iterator[Problem]:
    """No notifier of Burrow posts to Karrot."""
    only_if(seen.has_read("notifier"))
    if seen.to_karrot:
        return
    others = [
        f"{name} ({each.class_name}, {_TOKEN.sub('***', redacted(each.url_open or 'no URL'))})"
        for name, each in seen.notifiers.items()
    ]
    have = f"Burrow's notifiers are {', '.join(others)}" if others else "Burrow has no notifier"
    yield fault(
        f"no notifier posts to Karrot: {have}",
        f"run karrot burrow-config --karrot {seen.karrot_url or 'http://karrot:5000'}, and add its output to "
        "burrow.toml",
    )


@check("KarrotOnlyUnhealthyVerdicts", success="Burrow sends healthy groups too", where=_LINES, each="notifier")
def threshold(section: str, each: NotifierModule, _: BurrowSeen) -> Iterator[Problem]:
    """A notifier's `threshold` is above 1. So Burrow never sends OK groups, and Karrot does not know their lag."""
    if each.threshold > _ERR:
        effect = "Burrow sends only the closes of incidents"
    elif each.threshold > _OK:
        effect = f"Burrow sends only groups in {'WARN and ERR' if each.threshold == _WARN else 'ERR'}"
    else:
        return
    yield fault(f"{section} has threshold {each.threshold}: {effect}", f"{section} threshold = 1")


@check(success="Burrow sends the end of an incident", where=_LINES, each="notifier")
def send_close(section: str, each: NotifierModule, _: BurrowSeen) -> Iterator[Problem]:
    """send-close is off, or has no URL or no template. So Karrot does not learn when an incident ends."""
    if not each.send_close:
        later = "with the next OK verdict" if each.threshold <= _OK else "only through silence"
        yield warn(f"{section} has send-close off: an incident ends {later}", f"{section} send-close = true")
    elif not each.url_close or not each.template_close:
        missing = "url-close" if not each.url_close else "template-close"
        value = each.template_open if each.url_close else redacted(each.url_open or "")
        yield fault(
            f"{section} has send-close without {missing}: Burrow panics at its next start",
            f'{section} {missing} = "{value or ""}"',
        )
    elif each.url_close != each.url_open:
        yield warn(
            f"{section} sends opens to {redacted(each.url_open or '')} and closes to {redacted(each.url_close)}",
            f'{section} url-close = "{redacted(each.url_open or "")}"',
        )


@check(success="events are sent with POST", where=_LINES, each="notifier")
def method(section: str, each: NotifierModule, _: BurrowSeen) -> Iterator[Problem]:
    """A method is not POST. Many proxies remove the body of a DELETE. Karrot accepts only POST, PUT and DELETE."""
    for key, given in (("method-open", each.method_open), ("method-close", each.method_close)):
        if key == "method-close" and not each.send_close:
            continue
        remedy = f'{section} {key} = "POST"'
        what = f"{section} has {key} {given or 'empty'}"
        match (given or "").upper():
            case "POST" | "PUT":
                continue
            case "DELETE":
                yield warn(f"{what}: Karrot accepts it, but many proxies remove the body of a DELETE", remedy)
            case _:
                yield fault(f"{what}: Karrot accepts only POST, PUT and DELETE", remedy)


@check(success="the URLs end in /burrow", where=_LINES, each="notifier")
def url(section: str, each: NotifierModule, _: BurrowSeen) -> Iterator[Problem]:
    """A URL does not end in /burrow, or contains a template."""
    for key, given in _urls(each):
        path = urlsplit(given).path.rstrip("/")
        if "{{" in given:
            yield warn(
                f"{section} has a template in {key}: a group with ? # or % in its name breaks the URL",
                f'{section} {key} = "http://karrot:5000/burrow"',
            )
        elif not path.endswith(WEBHOOK_PATH):
            yield fault(
                f"{section} posts to {given}, which is not Karrot's /burrow",
                f'{section} {key} = "{given.removesuffix(path).rstrip("/") + WEBHOOK_PATH}"',
            )


@check(success="Karrot answers at the notifier's URL, without a redirect", where=_WRONG)
def webhook(seen: BurrowSeen) -> Iterator[Problem]:
    """The notifier's URL redirects, does not answer, or gives an answer that does not come from Karrot."""
    only_if(seen.webhooks)
    for address, found in seen.webhooks.items():
        if not found.is_karrot:
            yield _not_karrot(redacted(address), found)


@check(success="no notifier uses one of Burrow's own templates", where=_LINES, each="notifier")
def template(section: str, each: NotifierModule, _: BurrowSeen) -> Iterator[Problem]:
    """A notifier has one of Burrow's own template names. Burrow's own templates leave out cluster and lag."""
    used = [("template-open", each.template_open)]
    used += [("template-close", each.template_close)] if each.send_close else []
    for key, path in used:
        if not path or _BURROWS_OWN.fullmatch(posixpath.basename(path)):
            yield fault(
                f"{section} has {key} {path or 'empty'}: Karrot refuses its output",
                f'{section} {key} = "/etc/burrow/karrot.tmpl"; karrot burrow-config --template writes it',
            )


@check(success="the notifier's timeout is neither too short nor too long", where=_LINES, each="notifier")
def timeout(section: str, each: NotifierModule, seen: BurrowSeen) -> Iterator[Problem]:
    """A notifier's `timeout` is no whole number, too short for Karrot's 503, or longer than `interval`."""
    remedy = f"{section} timeout = 5"
    waits = each.timeout if each.timeout is not None else 5
    if waits <= _NEVER_WAITS:
        yield fault(f'{section} has a timeout that is not a whole number (such as "5s"): Burrow waits for ever', remedy)
    elif waits < _SHORT:
        yield warn(f"{section} gives up after {waits} s, before Karrot can answer that it is overloaded", remedy)
    elif waits >= seen.interval:
        yield warn(
            f"{section} waits {waits} s, but Burrow evaluates every {seen.interval} s: "
            "while the receiver is slow, requests overtake each other",
            remedy,
        )
    elif waits > _LONG:
        yield warn(f"{section} waits {waits} s, and Burrow holds its locks during this time", remedy)


@check(success="the notifiers' allowlists admit every group", where=_LINES)
def allowlist(seen: BurrowSeen) -> Iterator[Problem]:
    """Burrow knows groups that no notifier for a Karrot has in its allowlist."""
    everybody = [group for names in seen.groups.values() for group in names]
    only_if(seen.to_karrot and everybody)
    of_karrot: dict[str, dict[str, NotifierModule]] = {}
    for name, each in seen.to_karrot.items():
        key = "group-allowlist" if each.group_whitelist is None else "group-whitelist"
        of_karrot.setdefault(netloc(each.url_open or ""), {})[f"[notifier.{name}] {key}"] = each
    for lists in of_karrot.values():
        named, is_one = some([*lists]), len(lists) == 1
        if any(admits(each, "") is None for each in lists.values()):
            yield note(f"{named} could not be checked here", "check it in burrow.toml: Python cannot read the pattern")
            continue
        kept = [group for group in everybody if not any(admits(each, group) for each in lists.values())]
        if kept:
            say = fault if len(kept) == len(everybody) else note
            groups = counted_plain(len(everybody), "group")
            yield say(
                f"{named} {'excludes' if is_one else 'exclude'} {len(kept)} of {groups}: {some(kept)}",
                f'{named} = ".*"'
                if is_one
                else "add these groups to one of the lists, and to no other: Burrow sends a group once for each list",
            )


def _not_karrot(address: str, found: ReadWebhook) -> Problem:
    sample = "on Burrow's host, run karrot send-sample --karrot " + address.removesuffix("/").removesuffix(WEBHOOK_PATH)
    match found.status:
        case 0:
            return note(f"{address} could not be reached from here: {found.detail}", sample)
        case 301 | 302 | 303:
            return fault(
                f"{address} redirects to {found.detail}: Burrow loses the event and counts a success",
                f'url-open and url-close = "{found.detail}"',
            )
        case 307 | 308:
            return warn(f"{address} redirects to {found.detail}", f'url-open and url-close = "{found.detail}"')
        case status:
            return fault(
                f"{address} is not Karrot's /burrow: it answers a GET with HTTP {status}, not with Karrot's 405", sample
            )


def _urls(each: NotifierModule) -> list[tuple[str, str]]:
    both = [("url-open", each.url_open), ("url-close", each.url_close if each.send_close else None)]
    return [(key, given) for key, given in both if given]


CHECKS = [each for each in tuple(globals().values()) if isinstance(each, Check)]
"""Every check of this module, in source order."""
