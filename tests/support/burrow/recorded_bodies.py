"""Reads the recorded bodies of Burrow's webhook and REST API."""

import json
from pathlib import Path
from typing import Any

_DATA = Path(__file__).resolve().parents[2] / "data" / "burrow"


def recorded_body(name: str) -> bytes:
    """Return one of the 25 bodies in ``tests/data/burrow/events``, as sent."""
    return (_DATA / "events" / name).read_bytes()


def expected_events() -> dict[str, dict[str, Any]]:
    """Return the expected event of each of the 25 bodies, by file name (``index.json``)."""
    index = json.loads(recorded_body("index.json"))
    return {entry["file"]: entry["expected"] for entry in index["events"]}


def recorded_posts() -> list[tuple[float, bytes]]:
    """Return the 40 requests of a real Burrow v1.9.5: epoch seconds and body."""
    return [(request["at"], request["body"].encode()) for request in recorded_requests()]


def recorded_requests() -> list[dict[str, Any]]:
    """Return the same requests in full: ``at``, ``method``, ``path``, ``headers`` (pairs) and ``body``."""
    lines = (_DATA / "real" / "skew_experiment_v1.9.5_kafka4.1.2.jsonl").read_text(encoding="utf-8").splitlines()
    return list(map(json.loads, lines))


def recorded_rest_answer(name: str) -> bytes:
    """Return a recorded answer of Burrow's REST API: ``lag-warn``, ``status-warn``, ``lag-2`` or ``status-2``."""
    return (_DATA / "real" / f"rest-{name}.json").read_bytes()


_WARN = recorded_body("karrot_v1.9.5_warn.json")


def warn_body(consumer: str) -> bytes:
    """Return a WARN verdict on a group of this name."""
    return _WARN.replace(b'"orders-svc"', b'"%s"' % consumer.encode())


def padded_warn_body(consumer: str, size: int) -> bytes:
    """Return the same verdict with ``size`` bytes more."""
    return warn_body(consumer).replace(b'"Extras"', b'"Filler":"%s","Extras"' % (b"x" * size))
