"""Compares what Karrot shows about a fault with what Kafka says."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import unescape
from typing import Any

from e2e.truth.plan import Place, Proof
from karrot.text import count

Json = dict[str, Any]

_NO_FAULT = {"OK", "LEFT", "ABANDONED"}
_NOT_SEEN = "commits the same offset"
"""Kafka shows offsets, not commits: nobody saw that a group commits."""

_NEAR = 500


def bad_partitions(answer: Json) -> dict[Place, Json]:
    """Return the partitions of the API's answer that Karrot shows as bad."""
    partitions = answer["partitions"] or ()
    return {(each["topic"], each["partition"]): each for each in partitions if each["status"] not in _NO_FAULT}


def lack_of_facts(bad: Mapping[Place, Json], proof: Proof, committed: Mapping[Place, int], *, is_end: bool) -> str:
    """Say what is wrong or missing in the API; nothing if its facts prove the fault.

    At the end of a run, each partition with the fault must be bad.
    """
    if not bad or (is_end and proof.places.keys() - bad.keys()):
        return f"does not name partitions {sorted(number for _, number in proof.places.keys() - bad.keys())}"
    has_owner = proof.has_owner and not is_end  # a hung consumer cannot join again after the death of the broker
    return next(_wrong(bad, proof, committed, has_owner=has_owner), "")


def _wrong(
    bad: Mapping[Place, Json], proof: Proof, committed: Mapping[Place, int], *, has_owner: bool
) -> Iterator[str]:
    for place, each in bad.items():
        number, status = place[1], each["status"]
        shown = each["end"]["offset"] if each["end"] else None
        if place not in proof.places:
            yield f"names the healthy partition {number} as {status}"
        elif status not in proof.places[place]:
            yield f"names partition {number} as {status}"
        elif has_owner and not each["owner"]:
            yield f"does not name the owner of partition {number}"
        elif status != "WARN" and shown != committed.get(place):  # a group with WARN still commits
            yield f"shows partition {number} at {shown}, and Kafka has {committed.get(place)}"


def lack_of_page(page: str, bad: Mapping[Place, Json], proof: Proof, log_end: Callable[[str, int], int]) -> str:
    """Say what is wrong or missing on the group's page."""
    told = sentence(page)
    missing = [word for word in proof.words if word not in told]
    if not told or missing:
        return f"the page does not say {', '.join(missing) or 'anything'}: {told}"
    if _NOT_SEEN in told:
        return f"the page claims what nobody saw: {told}"
    return next(_wrong_rows(page, bad, log_end), "")


def _wrong_rows(page: str, bad: Mapping[Place, Json], log_end: Callable[[str, int], int]) -> Iterator[str]:
    rows = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    for (topic, number), each in bad.items():
        of_partition = [row for row in rows if _cell(row, "Partition") == str(number) and topic in _text(row)]
        row = of_partition[0] if of_partition else ""
        shown, end = _cell(row, "Committed offset"), _cell(row, "Log end offset").replace(",", "")
        if not row:
            yield f"the page has no row for partition {number}"
        elif each["end"] and each["status"] != "WARN" and shown != count(each["end"]["offset"]):
            yield f"the page shows partition {number} at {shown}, and the API at {each['end']['offset']}"
        elif each["status"] == "BEYOND_END":
            real = log_end(topic, number)
            if not end.isdigit() or not real - _NEAR <= int(end) <= real:
                yield f"the page shows the log end {end} of partition {number}, and Kafka has {real}"


def sentence(page: str) -> str:
    """Return the text of the banner that explains the group's status."""
    found = re.search(r'<p class="wrong">(.*?)</div>', page, re.DOTALL)
    return _text(found[1]).partition("Runbook:")[0].strip() if found else ""


def _text(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def _cell(row: str, label: str) -> str:
    found: Iterable[str] = re.findall(rf'<td[^>]*data-label="{label}"[^>]*>(.*?)</td>', row, re.DOTALL)
    return next(map(_text, found), "")
