"""Names without end: the groups that were there first stay, the rest is counted, and memory knows a bound."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.load import named
from support.processes import Service
from support.waiting import wait_for

NAMES = 20_000
MOST = 1_000
CLIENTS = 16
GROWTH_BYTES = 48 << 20


def resident(service: Service) -> int:
    """Bytes of the workers' own: what they share with their parent is not counted."""
    found = 0
    for pid in service.workers():
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        found += sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Private_"))
    return found


def flood(service: Service, client: int) -> int:
    """Post names that nobody has heard of, as fast as they are answered; how many were accepted."""
    accepted = 0
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
        for number in range(client, NAMES, CLIENTS):
            body = named(f"forged-{number}")
            connection.sendall(b"POST /burrow HTTP/1.1\r\nHost: k\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            accepted += b" 202 " in connection.recv(4096)
    return accepted


def test_a_flood_of_names_is_bounded_and_the_known_groups_go_on(tmp_path: Path) -> None:
    with Service(tmp_path / "data", max_consumers=str(MOST)) as service:
        assert service.post(named("known")).status == 202
        before = resident(service)
        with ThreadPoolExecutor(CLIENTS) as pool:
            assert sum(pool.map(lambda client: flood(service, client), range(CLIENTS))) == NAMES
        assert service.post(named("known").replace(b"11020", b"77")).status == 202
        assert service.metric("karrot_consumer_lag", consumer="known") == 77
        assert service.metric("karrot_consumers") == MOST
        assert service.get("/metrics").body.count(b"\nkarrot_consumer_lag{") == MOST
        assert resident(service) - before < GROWTH_BYTES
        dropped = NAMES + 1 - MOST
        wait_for(lambda: service.metric("karrot_series_dropped_total") == dropped)
        assert service.metric("karrot_log_events") == NAMES + 2
