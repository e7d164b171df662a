"""Checks Burrow's notifiers: whether each event gets to Karrot, and complete."""

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from karrot.burrow.client import NotifierModule
from karrot.doctor.checks import Said, check, fault, note, only_if, warn
from karrot.doctor.snapshot_types import WEBHOOK_PATH, BurrowSeen, ReadWebhook
from karrot.text import counted_plain, some

_LINES = "burrow.md#why-each-line"
_WRONG = "burrow.md#when-something-is-wrong"
_BURROWS_OWN = re.compile(r"default-(http|slack|email)-?\w*\.tmpl")
_OK, _WARN, _ERR = 1, 2, 3
_NEVER_WAITS, _SHORT, _LONG = 0, 3, 30


@check(well="a notifier posts to Karrot", where="burrow.md#connecting-burrow")
def notifier(seen: BurrowSeen) -> Iterator[Said]:
    """No notifier of Burrow's posts to Karrot."""
    only_if(seen.has_read("notifier"))
    if seen.to_karrot:
        return
    told = [f"{name} ({each.class_name}, {each.url_open or 'no URL'})" for name, each in seen.notifiers.items()]
    have = f"its notifiers are {', '.join(told)}" if told else "it has no notifier at all"
    yield fault(
        f"no notifier posts to Karrot: {have}",
        f"karrot burrow-config --url {seen.karrot_url or 'http://karrot:5000'} prints the section for burrow.toml",
    )


@check("only unhealthy verdicts", well="every group is sent, the healthy too", where=_LINES)
def threshold(seen: BurrowSeen) -> Iterator[Said]:
    """A threshold above 1: a group that is well is never sent, so its lag is not seen."""
    only_if(seen.to_karrot)
    for name, each in seen.to_karrot.items():
        if each.threshold > _ERR:
            said = "nothing but closes is ever sent"
        elif each.threshold > _OK:
            said = f"only groups in {'WARN and ERR' if each.threshold == _WARN else 'ERR'} are sent, no healthy lag"
        else:
            continue
        yield fault(f"{_section(name)} has threshold {each.threshold}: {said}", f"{_section(name)} threshold = 1")


@check(well="the end of an incident is sent", where=_LINES)
def send_close(seen: BurrowSeen) -> Iterator[Said]:
    """send-close is off, or has no address of its own: nobody says that an incident is over."""
    only_if(seen.to_karrot)
    for name, each in seen.to_karrot.items():
        if not each.send_close:
            later = "by the next healthy verdict" if each.threshold <= _OK else "by silence alone"
            yield warn(
                f"{_section(name)} has send-close off: an incident ends {later}", f"{_section(name)} send-close = true"
            )
        elif not each.url_close or not each.template_close:
            missing = "url-close" if not each.url_close else "template-close"
            yield fault(
                f"{_section(name)} has send-close without {missing}: Burrow panics at its next start",
                f'{_section(name)} {missing} = "{(each.url_open if not each.url_close else each.template_open) or ""}"',
            )
        elif each.url_close != each.url_open:
            yield warn(
                f"{_section(name)} sends opens to {each.url_open} and closes to {each.url_close}",
                f'{_section(name)} url-close = "{each.url_open}"',
            )


@check(well="events are sent with POST", where=_LINES)
def method(seen: BurrowSeen) -> Iterator[Said]:
    """A method other than POST: DELETE loses its body in many proxies, others are refused with 405."""
    only_if(seen.to_karrot)
    for name, each in seen.to_karrot.items():
        for key, given in (("method-open", each.method_open), ("method-close", each.method_close)):
            if key == "method-close" and not each.send_close:
                continue
            mend = f'{_section(name)} {key} = "POST"'
            told = f"{_section(name)} has {key} {given or 'empty'}"
            match (given or "").upper():
                case "POST":
                    continue
                case "PUT":
                    yield note(f"{told}: Karrot takes it, though proxies may repeat it", mend)
                case "DELETE":
                    yield warn(f"{told}: Karrot takes it, but many proxies strip a DELETE of its body", mend)
                case _:
                    yield fault(f"{told}: Karrot takes POST, PUT and DELETE", mend)


@check(well="the URLs lead to /burrow", where=_LINES)
def url(seen: BurrowSeen) -> Iterator[Said]:
    """A URL that does not end in /burrow, or that is a template of its own."""
    only_if(seen.to_karrot)
    for name, each in seen.to_karrot.items():
        for key, given in _urls(each):
            path = urlsplit(given).path.rstrip("/")
            if "{{" in given:
                yield warn(
                    f"{_section(name)} has a template in {key}: a group with ? # or % in its name breaks the address",
                    f'{_section(name)} {key} = "http://karrot:5000/burrow"',
                )
            elif not path.endswith(WEBHOOK_PATH):
                yield fault(
                    f"{_section(name)} posts to {given}, which is not Karrot's /burrow",
                    f'{_section(name)} {key} = "{given.removesuffix(path).rstrip("/") + WEBHOOK_PATH}"',
                )


@check(well="Karrot answers where the notifier posts to, without a redirect", where=_WRONG)
def webhook(seen: BurrowSeen) -> Iterator[Said]:
    """The notifier's URL leads to a redirect, to nobody, or to somebody who is not Karrot."""
    only_if(seen.webhooks)
    for address, found in seen.webhooks.items():
        if not found.is_karrot:
            yield _not_karrot(address, found)


@check(well="no template is one of Burrow's own", where=_LINES)
def template(seen: BurrowSeen) -> Iterator[Said]:
    """A template that Burrow ships leaves out cluster and lag; of templates the name alone can be seen."""
    only_if(seen.to_karrot)
    for name, each in seen.to_karrot.items():
        used = [("template-open", each.template_open)]
        used += [("template-close", each.template_close)] if each.send_close else []
        for key, path in used:
            if not path or _BURROWS_OWN.fullmatch(posixpath.basename(path)):
                yield fault(
                    f"{_section(name)} has {key} {path or 'empty'}: Karrot refuses what it makes",
                    f'{_section(name)} {key} = "/etc/burrow/karrot.tmpl", written by karrot burrow-config --template',
                )
        if each.send_close and each.template_close and each.template_close != each.template_open:
            yield note(
                f"{_section(name)} has two templates, {each.template_open} and {each.template_close}",
                'each has to be {"Event": {{ jsonencoder . }}}',
            )


@check(well="the notifier waits long enough and not too long", where=_LINES)
def timeout(seen: BurrowSeen) -> Iterator[Said]:
    """A timeout that is no whole number, shorter than Karrot needs to say 503, or longer than the interval."""
    only_if(seen.to_karrot)
    for name, each in seen.to_karrot.items():
        mend = f"{_section(name)} timeout = 5"
        waits = each.timeout if each.timeout is not None else 5
        if waits <= _NEVER_WAITS:
            yield fault(f'{_section(name)} has a timeout that is no whole number ("5s"?): Burrow waits for ever', mend)
        elif waits < _SHORT:
            yield warn(f"{_section(name)} gives up after {waits} s, before Karrot says that it is overloaded", mend)
        elif waits >= seen.interval:
            yield warn(
                f"{_section(name)} waits {waits} s and Burrow evaluates every {seen.interval} s: "
                "while a sink is slow, requests overtake each other",
                mend,
            )
        elif waits > _LONG:
            yield warn(f"{_section(name)} waits {waits} s: Burrow holds its locks meanwhile", mend)


@check(well="certificates are verified", where="burrow.md#connecting-burrow")
def noverify(seen: BurrowSeen) -> Iterator[Said]:
    """The notifier takes any certificate."""
    only_if(seen.to_karrot)
    for name, each in seen.to_karrot.items():
        if (each.noverify or "").lower() in ("true", "1", "t") and (each.url_open or "").startswith("https:"):
            yield note(f"{_section(name)} takes any certificate", f"{_section(name)} extra-ca instead of noverify")


@check(well="the notifier's allowlist lets every group pass", where=_LINES)
def allowlist(seen: BurrowSeen) -> Iterator[Said]:
    """A notifier's allowlist keeps groups back that Burrow knows."""
    everybody = [group for names in seen.groups.values() for group in names]
    only_if(seen.to_karrot and everybody)
    for name, each in seen.to_karrot.items():
        pattern = each.group_allowlist or each.group_whitelist or ""
        key = "group-allowlist" if each.group_whitelist is None else "group-whitelist"
        mend = f'{_section(name)} {key} = ".*"'
        try:
            kept = [group for group in everybody if not re.search(pattern, group)]
        except re.error:
            yield note(f"{_section(name)} {key} {pattern!r} could not be tried here", mend)
            continue
        if kept:
            say = fault if len(kept) == len(everybody) else note
            groups = counted_plain(len(everybody), "group")
            yield say(f"{_section(name)} {key} keeps back {len(kept)} of {groups}: {some(kept)}", mend)


@check(well="", where=_WRONG)
def unseen(seen: BurrowSeen) -> Iterator[Said]:
    """What Burrow does not tell of itself has to be looked up in its burrow.toml."""
    only_if(seen.to_karrot)
    for name in seen.to_karrot:
        yield note(
            f"of {_section(name)} Burrow tells no send-interval, send-once, group-denylist, headers and user, "
            "nor what its templates hold",
            "in burrow.toml: send-interval less than interval; no send-once; a denylist only on purpose; "
            'headers with Idempotency-Key = "1"; username and password as Karrot has them',
        )


def _not_karrot(address: str, found: ReadWebhook) -> Said:
    sample = "from Burrow's host: karrot send-sample --url " + address.removesuffix("/").removesuffix(WEBHOOK_PATH)
    match found.status:
        case 0:
            return note(f"{address} could not be asked from here: {found.said}", sample)
        case 301 | 302 | 303:
            return fault(
                f"{address} redirects to {found.said}: Burrow drops the event on the way and counts a success",
                f'url-open and url-close = "{found.said}"',
            )
        case 307 | 308:
            return warn(f"{address} redirects to {found.said}", f'url-open and url-close = "{found.said}"')
        case status:
            return fault(f"{address} is not Karrot's /burrow: a GET brings HTTP {status}, not Karrot's 405", sample)


def _urls(each: NotifierModule) -> list[tuple[str, str]]:
    both = [("url-open", each.url_open), ("url-close", each.url_close if each.send_close else None)]
    return [(key, given) for key, given in both if given]


def _section(name: str) -> str:
    return f"[notifier.{name}]"


CHECKS = (notifier, threshold, send_close, method, url, webhook, template, timeout, noverify, allowlist, unseen)
"""Each takes a `BurrowSeen`."""
