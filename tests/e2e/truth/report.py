"""Writes the result of a run as JSON and as Markdown."""

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from e2e.truth.judge import Judged, is_true, last_line, seconds


def markdown(found: list[Judged], facts: dict[str, Any]) -> str:
    """Return a table of the harmless kinds, one of the planted kinds, and a line for each wrong group."""
    kinds: dict[str, list[Judged]] = defaultdict(list)
    for each in found:
        kinds[each.case.kind].append(each)
    lines = ["# No false alarm and no silence", "", ", ".join(f"{name} {value}" for name, value in facts.items()), ""]
    lines += ["| harmless | groups | with an incident | with an alert |", "| --- | ---: | ---: | ---: |"]
    for kind, rows in kinds.items():
        if rows[0].case.proof is None:
            counts = (
                len(rows),
                *(sum(bool(getattr(each.verdict, name)) for each in rows) for name in ("incident", "alert")),
            )
            lines.append(f"| {kind} | {' | '.join(map(str, counts))} |")
    lines += ["", "| planted | groups | missed | twice | without proof | seconds to find: median / longest |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for kind, rows in kinds.items():
        if rows[0].case.proof is not None:
            names = ("missed", "twice", "unproved")
            counts = (len(rows), *(sum(bool(getattr(each.verdict, name)) for each in rows) for name in names))
            lines.append(f"| {kind} | {' | '.join(map(str, counts))} | {seconds(rows)} |")
    wrong = [each for each in found if each.verdict.reasons]
    if wrong:
        lines += ["", "What is wrong:", ""]
        lines += [f"- {each.case.group} ({_short(each)}): {'; '.join(each.verdict.reasons)}" for each in wrong]
    return "\n".join([*lines, "", last_line(found), ""])


def _short(each: Judged) -> str:
    return f"{each.case.kind}, {each.case.note}" if each.case.note else each.case.kind


def as_json(found: list[Judged], facts: dict[str, Any]) -> dict[str, Any]:
    groups = []
    for case, sighting, verdict in found:
        told: dict[str, Any] = {
            "kind": case.kind,
            "group": case.group,
            "note": case.note,
            "planted_at": case.planted_at,
        }
        told |= {"limit_s": case.limit_s if case.proof else None, "wrong": verdict.reasons}
        groups.append(told | asdict(sighting))
    return {"result": last_line(found), "is_true": is_true(found), **facts, "groups": groups}


def write(found: list[Judged], facts: dict[str, Any], directory: Path) -> str:
    """Write ``truth.json`` and ``truth.md``; return the Markdown."""
    text = markdown(found, facts)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "truth.json").write_text(
        json.dumps(as_json(found, facts), indent=1, default=str) + "\n", encoding="utf-8"
    )
    (directory / "truth.md").write_text(text, encoding="utf-8")
    return text
