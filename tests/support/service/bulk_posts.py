"""Posts many bodies or group names to a running service, and measures its answers and memory."""

import json
import socket
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from support.burrow.recorded_bodies import warn_body
from support.service.karrot_service import Service

UNAVAILABLE = frozenset({(503, "overloaded"), (503, "unconfirmed")})
"""The answers with which a healthy service may refuse an event for the moment, for example on a busy machine.

An ``overloaded`` event is not stored. An ``unconfirmed`` event may be stored.
"""


def post_until_stored(service: Service, body: bytes) -> Counter[tuple[int, str]]:
    """Post a body, again while the service is too busy, until it is stored; return the number of each answer."""
    answers = Counter[tuple[int, str]]()
    while not answers[202, ""]:
        answers += post_all(service, [body], clients=1)
        assert answers.keys() - UNAVAILABLE <= {(202, "")}
    return answers


def post_all(service: Service, wanted: Iterable[bytes], clients: int = 4) -> Counter[tuple[int, str]]:
    """Post each body; return the number of answers with each status and code."""
    bodies = list(wanted)
    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(lambda first: _post(service, bodies[first::clients]), range(clients)), Counter())


def assert_metrics_parse(service: Service) -> None:
    """Assert that each of the two formats is valid for its own parser."""
    plain = service.get("/metrics", {"Accept": "text/plain"}).body.decode()
    assert sum(1 for _ in text_string_to_metric_families(plain)) > 20
    answer = service.get("/metrics", {"Accept": "application/openmetrics-text;version=1.0.0"})
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    families = openmetrics.text_string_to_metric_families(answer.body.decode())  # type: ignore[no-untyped-call]
    assert sum(1 for _ in families) > 20


def post_new_groups(service: Service, numbers: range, clients: int = 16) -> Counter[tuple[int, str]]:
    """Post a new name for each number, each after an answer; return the number of each status and code."""
    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(lambda first: _flood(service, numbers[first::clients]), range(clients)), Counter())


def private_memory_bytes(service: Service) -> int:
    """Return the private memory of the workers in bytes, without the part that they share with their parent."""
    found = 0
    for pid in service.workers():
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        found += sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Private_"))
    return found


def _flood(service: Service, numbers: range) -> Counter[tuple[int, str]]:
    answers = Counter[tuple[int, str]]()
    connection = None
    for number in numbers:
        body = warn_body(f"forged-{number}")
        connection = connection or socket.create_connection(("127.0.0.1", service.port), timeout=20)
        connection.sendall(b"POST /burrow HTTP/1.1\r\nHost: k\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        if connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 202":
            connection.recv(4096)
            answers[202, ""] += 1
            continue
        with HTTPResponse(connection) as refusal:
            refusal.begin()
            answers[refusal.status, json.loads(refusal.read())["code"]] += 1
        connection.close()  # a refusal ends the connection
        connection = None
    if connection:
        connection.close()
    return answers


def _post(service: Service, bodies: list[bytes]) -> Counter[tuple[int, str]]:
    answers = Counter[tuple[int, str]]()
    with closing(HTTPConnection("127.0.0.1", service.port, timeout=20)) as connection:
        for body in bodies:
            connection.request("POST", "/burrow", body)
            response = connection.getresponse()
            said = json.loads(response.read())
            answers[response.status, said.get("code", "")] += 1
    return answers
