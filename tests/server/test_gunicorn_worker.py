"""The worker never makes an honest client wait for a slow one."""

import json
import os
import resource
import signal
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from support.burrow.recorded_bodies import recorded_body
from support.servers.self_signed_certificate import make_self_signed
from support.service.karrot_service import Service
from support.waiting import wait_for

WARN = recorded_body("karrot_v1.9.5_warn.json")
HEAD = b"POST /burrow HTTP/1.1\r\nHost: karrot\r\nContent-Length: %d\r\n\r\n" % len(WARN)

BYTE_A_SECOND, NEVER_READING = "a byte a second", "never reading"
OPENINGS = {
    "half a header": HEAD[:30],
    "half a body": HEAD + WARN[:100],
    BYTE_A_SECOND: HEAD,
    NEVER_READING: b"GET /metrics HTTP/1.1\r\nHost: k\r\n\r\n" * 20,
}
SLOW_CLIENTS = 200
HONEST = 30
FEW = 8  # earlier connections that are about to close


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("worker") / "data"
    with Service(directory, workers="1", threads="2", header_timeout="500ms", body_timeout="1s") as service:
        yield service


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that waits for slow clients for longer than `Service.request` waits for an answer."""
    directory = tmp_path_factory.mktemp("patient") / "data"
    with Service(directory, workers="1", threads="2", header_timeout="60s", body_timeout="60s") as service:
        for number in range(300):  # so that an answer of /metrics is long
            assert service.post(WARN.replace(b"orders-svc", b"orders-svc-%d" % number)).status == 202
        yield service


def connect(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=20)


def read_all(client: socket.socket) -> bytes:
    """Read everything until the server closes."""
    data = b""
    while chunk := client.recv(65536):
        data += chunk
    return data


def read_answer(client: socket.socket) -> bytes:
    """Read one answer with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))[15:])
    while len(body) < length:
        body += client.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def slow_clients(service: Service, kinds: list[str]) -> Iterator[list[socket.socket]]:
    """Connect one client of each of these kinds, all at once."""
    before, over = held(service), Event()
    clients = [connect(service) for _ in kinds]
    trickling = [client for client, kind in zip(clients, kinds, strict=True) if kind == BYTE_A_SECOND]
    trickle = Thread(target=send_a_byte_a_second, args=(trickling, over))
    for client, kind in zip(clients, kinds, strict=True):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(OPENINGS[kind])
    trickle.start()
    try:
        yield clients
    finally:
        over.set()
        trickle.join()
        for client in clients:
            client.close()
    wait_for(lambda: held(service) < before + FEW)


def held(service: Service) -> int:
    """Return the number of the worker's open descriptors."""
    (worker,) = service.workers()
    return sum(1 for _ in Path(f"/proc/{worker}/fd").iterdir())


def send_a_byte_a_second(clients: list[socket.socket], over: Event) -> None:
    for byte in WARN:
        for client in clients:
            with suppress(OSError):  # it got a 408
                client.send(bytes([byte]))
        if over.wait(1):
            return


@pytest.mark.parametrize("kinds", [*([kind] for kind in OPENINGS), list(OPENINGS)], ids=" + ".join)
def test_two_hundred_slow_clients_delay_no_event(patient: Service, kinds: list[str]) -> None:
    before = held(patient)
    with slow_clients(patient, kinds * (SLOW_CLIENTS // len(kinds))) as clients:
        wait_for(lambda: held(patient) > before + len(clients) - FEW)
        for _ in range(HONEST):
            assert patient.post(WARN).status == 202
            assert patient.get("/healthz").status == 200


def test_slow_clients_are_refused_in_the_end(service: Service) -> None:
    kinds = [kind for kind in OPENINGS if kind != NEVER_READING]
    with slow_clients(service, kinds * 20) as clients:
        assert {read_all(client).partition(b"\r\n")[0] for client in clients} == {b"HTTP/1.1 408 Request Timeout"}


def test_an_event_is_accepted_whose_first_byte_is_later_than_a_head_may_take(service: Service) -> None:
    with connect(service) as late, slow_clients(service, ["half a header"]) as (slow,):
        assert read_all(slow).startswith(b"HTTP/1.1 408")
        late.sendall(HEAD + WARN)
        assert read_answer(late).startswith(b"HTTP/1.1 202")


def test_requests_that_never_arrive_completely_are_counted(service: Service) -> None:
    before = service.metric("karrot_events_rejected_total", code="incomplete_body") or 0
    with slow_clients(service, ["half a header", "half a body"]) as clients:
        for client in clients:
            assert read_all(client).startswith(b"HTTP/1.1 408")
    wait_for(lambda: service.metric("karrot_events_rejected_total", code="incomplete_body") == before + 2)


@pytest.mark.parametrize("sent", [b"", b"x" * 40_000], ids=["nothing more", "a part of the body"])
def test_a_refusal_by_the_headers_does_not_wait_for_the_body(service: Service, sent: bytes) -> None:
    with connect(service) as client:
        client.sendall(b"POST /burrow HTTP/1.1\r\nHost: k\r\nContent-Length: 9999999999\r\n\r\n" + sent)
        assert read_all(client).startswith(b"HTTP/1.1 413")


def test_a_client_that_expects_100_continue_gets_it(service: Service) -> None:
    with connect(service) as client:
        client.sendall(HEAD[:-2] + b"Expect: 100-continue\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 100 Continue")
        client.sendall(WARN)
        assert read_answer(client).startswith(b"HTTP/1.1 202")


def test_many_new_connections_at_once_are_all_accepted_if_the_machine_has_time(service: Service) -> None:
    (worker,) = service.workers()
    before_s = waited_for_a_processor(worker)
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _: service.post(WARN), range(500)))
    refused = [answer for answer in answers if answer.status != 202]
    assert all(answer.status == 503 and answer.json["code"] == "overloaded" for answer in refused)
    assert len(refused) < len(answers)
    assert not refused or waited_for_a_processor(worker) - before_s > 0.5


def accepted(service: Service, worker: int) -> int:
    """Return how many connections to the service's port a worker has accepted and not closed."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
    connections = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{service.port:04X}") and row[3] == "01"}
    return sum(str(file.readlink()) in connections for file in Path(f"/proc/{worker}/fd").iterdir())


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("two-workers") / "data"
    with Service(directory, workers="2", threads="2", header_timeout="60s") as service:
        with ExitStack() as opened:

            def both_accept() -> bool:
                opened.enter_context(connect(service))
                return {accepted(service, worker) > 0 for worker in service.workers()} == {True}

            wait_for(both_accept)
        yield service


def test_a_worker_that_hangs_does_not_stop_another_one_from_accepting(two_workers: Service) -> None:
    with stopped(two_workers.workers()[0]), ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: two_workers.post(WARN).status, range(200)))
    assert answers == [202] * 200


@contextmanager
def stopped(worker: int) -> Iterator[None]:
    """Let a worker hang."""
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


HERD = 3000
SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


@pytest.mark.skipif(int(SOMAXCONN.read_text()) <= HERD, reason="this kernel queues fewer connections")
@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < HERD + 1000, reason="this user may open too few files"
)
def test_posts_that_arrive_while_the_worker_hangs_are_all_answered(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Service(tmp_path / "data", workers="1", threads="2") as service, ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with stopped(*service.workers()):
            clients = [opened.enter_context(connect(service)) for _ in range(HERD)]
            for number, client in enumerate(clients):
                client.sendall(numbered(number))
        statuses = {read_answer(client)[9:12] for client in clients}
    assert b"202" in statuses
    assert statuses <= {b"202", b"503"}


def waited_for_a_processor(pid: int) -> float:
    """Return the seconds for which threads of a process were ready to run while other programs ran."""
    return sum(int(task.read_text().split()[1]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


STARVED_EVENTS = 500
OVERLOADED = {
    "type": "urn:problem-type:karrot:overloaded",
    "title": "The request waited too long for its turn",
    "status": 503,
    "detail": "The request waited too long for its turn",
    "code": "overloaded",
}


def is_refused(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    headers = {b"content-type: application/problem+json", b"retry-after: 1", b"connection: close"}
    lines = set(head.lower().split(b"\r\n"))
    return head.startswith(b"HTTP/1.1 503 ") and headers <= lines and json.loads(body) == OVERLOADED


def test_an_event_without_a_chance_is_refused_and_not_stored_and_health_checks_are_answered(tmp_path: Path) -> None:
    answers: dict[str, bytes] = {}
    refused: set[str] = set()
    with Service(tmp_path / "data", workers="1", threads="2") as service:
        while not refused:  # on a busy machine the worker may run longer than intended
            answers |= answers_of_a_starved_worker(service, range(len(answers), len(answers) + STARVED_EVENTS))
            refused = {name for name, answer in answers.items() if is_refused(answer)}
        taken = {name for name, answer in answers.items() if answer.startswith(b"HTTP/1.1 202")}
        unknown = {name for name, answer in answers.items() if b'"unconfirmed"' in answer}
        assert taken | refused | unknown == set(answers)
        wait_for(lambda: service.metric("karrot_events_rejected_total", code="overloaded") == len(refused))
        assert service.post(WARN).status == 202
        stored = set(service.stored_consumers())
    assert taken <= stored
    assert not refused & stored


def answers_of_a_starved_worker(service: Service, numbers: range) -> dict[str, bytes]:
    """Post all events at once; return the answer to each by its group."""
    with ExitStack() as stack:
        clients = {number: stack.enter_context(connect(service)) for number in numbers}
        with starved(*service.workers()):
            for number, client in clients.items():
                client.sendall(numbered(number))
            assert service.get("/healthz").status == 200
            return {f"group-{number}": read_answer(client) for number, client in clients.items()}


def numbered(number: int) -> bytes:
    body = WARN.replace(b'"orders-svc"', b'"group-%d"' % number)
    return HEAD.replace(b"%d" % len(WARN), b"%d" % len(body)) + body


@contextmanager
def starved(worker: int) -> Iterator[None]:
    """Start a worker that may run for only 3 % of the time."""
    over = Event()

    def starve() -> None:
        while not over.is_set():
            os.kill(worker, signal.SIGSTOP)
            over.wait(0.1)
            os.kill(worker, signal.SIGCONT)
            over.wait(0.003)

    thread = Thread(target=starve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def tls_service(tmp_path: Path) -> Iterator[tuple[Service, ssl.SSLContext]]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = make_self_signed(tmp_path)
    cert.write_bytes(made.chain)
    key.write_bytes(made.key)
    service = Service(
        tmp_path / "data", tls_cert=str(cert), tls_key=str(key), workers="1", threads="2", header_timeout="1s"
    )
    service.start(wait=False)
    try:
        wait_for(lambda: b"this worker leads" in service.said.read_bytes())
        yield service, ssl.create_default_context(cafile=str(cert))
    finally:
        service.kill()


def test_wrong_credentials_are_refused_before_the_body(tmp_path: Path) -> None:
    with Service(
        tmp_path / "data", burrow_username="burrow", burrow_password="right", workers="1", body_timeout="60s"
    ) as service:
        for authorization in (b"", b"Authorization: Basic d3Jvbmc6d3Jvbmc=\r\n", b"Authorization: Bearer \xff\r\n"):
            with connect(service) as client:
                client.sendall(HEAD[:-2] + authorization + b"\r\n")
                assert read_all(client).startswith(b"HTTP/1.1 401")
        right = {"Authorization": "Basic YnVycm93OnJpZ2h0"}
        assert service.post(WARN, right).status == 202
        wait_for(lambda: service.metric("karrot_events_rejected_total", code="unauthorized") == 3)


def test_https_requests_are_answered_during_and_after_handshakes_that_never_end(tmp_path: Path) -> None:
    with tls_service(tmp_path) as (service, context):
        first = service.workers()
        idle = [connect(service) for _ in range(10)]
        idle[0].sendall(b"\x16\x03\x01")

        def post_twice() -> None:
            with context.wrap_socket(connect(service), server_hostname="localhost") as secure:
                for _ in range(2):
                    secure.sendall(HEAD + WARN)
                    answer = b""
                    while b"accepted" not in answer:
                        answer += secure.recv(65536)
                    assert answer.startswith(b"HTTP/1.1 202")

        post_twice()
        for client in idle[1:]:
            assert read_all(client) == b""
        post_twice()
        assert service.workers() == first
        for client in idle:
            client.close()


def test_many_large_bodies_at_once_are_accepted_or_refused_and_small_ones_continue(service: Service) -> None:
    large = WARN.replace(b'"Extras"', b'"Filler":"%b","Extras"' % (b"x" * 7_000_000))
    assert len(large) > 7_000_000
    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(service.post, large) for _ in range(10)]
        assert {service.post(WARN).status for _ in range(10)} == {202}
        assert {answer.result().status for answer in answers} <= {202, 503, 408}  # 408: on a busy machine, a late body
    wait_for(lambda: service.post(large).status == 202)  # the last of them may not have closed yet
