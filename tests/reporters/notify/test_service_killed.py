"""A running service sends each message once though it is killed in between, and shows its channels' secrets nowhere."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from karrot.burrow.payload import to_wire
from karrot.clock import SystemClock
from support.burrow.lag_events import make_event
from support.eventlog.sqlite_log import open_sqlite
from support.reporters.notify_rig import Receiver
from support.service.karrot_service import Service
from support.waiting import wait_for

HTML = {"Accept": "text/html"}
SURELY_KNOWN = {"WARN": r'"WARN",\d+,true', "ERR": r'"ERR",\d+,true', "OK": r"^\[\[\],"}
"""What the event log keeps of the channel, by the status that the channel knows."""


def service_with(tmp_path: Path, text: str, **settings: str) -> Service:
    file = tmp_path / "notify.toml"
    file.write_text(text)
    file.chmod(0o600)
    told: dict[str, Any] = {"reporters": "prometheus,notify", "notify_config": str(file)} | settings
    return Service(tmp_path / "data", **told)


def post(service: Service, status: str, consumer: str = "orders", **overrides: Any) -> None:
    event = make_event(status_text=status, consumer=consumer, incident_id=f"of-{consumer}", **overrides)
    assert service.post(to_wire(event)).status == 202


def known_to_the_channel(service: Service) -> str:
    log = open_sqlite(service.directory, SystemClock(), prepare=False)
    try:
        return (log.recall("notify", "channel ops") or b"").decode()
    finally:
        log.close()


def test_three_messages_for_an_incident_while_the_service_is_killed_in_between(
    tmp_path: Path, receiver: Receiver
) -> None:
    routes = f'[channels.ops]\nurl = "{receiver.url()}"\ngather_seconds = 0\n'
    with service_with(tmp_path, routes) as service:
        for number, (status, kept) in enumerate(SURELY_KNOWN.items(), start=1):
            post(service, status)
            service.kill()  # perhaps before the message: then the next start sends it without a new event
            service.start()
            wait_for(lambda number=number: len(receiver.seen) >= number)  # type: ignore[misc]
            wait_for(lambda kept=kept: bool(re.search(kept, known_to_the_channel(service))))  # type: ignore[misc]
            post(service, status)
        post(service, "WARN", "marker")
        wait_for(lambda: "marker" in receiver.messages()[-1])
    titles = [message.partition("\n")[0] for message in receiver.messages()]
    orders = [title for title in titles if "orders" in title]
    assert orders == ["WARN: orders on prod-eu", "Worse, ERR: orders on prod-eu", "Over: orders on prod-eu"]


def test_a_muted_group_sends_no_message_until_its_mute_ends(tmp_path: Path, receiver: Receiver) -> None:
    with service_with(tmp_path, f"[channels.ops]\nurl = '{receiver.url()}'\ngather_seconds = 0\n") as service:
        wish = {"cluster": make_event().cluster, "pattern": "orders", "reason": "a migration", "for": "1h"}
        begun = service.request("POST", "/api/v1/mutes", json.dumps(wish).encode())
        assert begun.status == 200
        post(service, "ERR")
        post(service, "ERR", "marker")
        wait_for(lambda: receiver.messages() != [])
        assert ["ERR: marker on" in message for message in receiver.messages()] == [True]
        [mute] = begun.json["mutes"]
        assert service.request("DELETE", f"/api/v1/mutes?id={mute['id']}").status == 200
        wait_for(lambda: "ERR: orders on" in receiver.messages()[-1])


def test_no_page_answer_or_log_line_has_the_secret_of_a_channel(tmp_path: Path, receiver: Receiver) -> None:
    away = "[channels.away]\nurl = 'json://user:s3cretword@127.0.0.1:1/s3cretpath'\ngather_seconds = 0\n"
    text = f"{away}[channels.ops]\nurl = '{receiver.url('s3cretpath')}'\ngather_seconds = 0\n"
    with service_with(tmp_path, text, log="DEBUG") as service:
        post(service, "WARN")
        wait_for(lambda: "no connection" in service.get("/reporters", HTML).body.decode())
        wait_for(lambda: "sent a message" in service.get("/reporters", HTML).body.decode())
        post(service, "WARN")
        wait_for(lambda: "failing" in service.get("/readyz").body.decode())
        for path in ("/config", "/reporters", "/reporters/notify", "/api/v1/reporters", "/metrics", "/readyz", "/"):
            answer = service.get(path, HTML)
            assert answer.status == 200, path
            assert b"s3cret" not in answer.body, path
        assert b'reason="unreachable"' in service.get("/metrics").body
        assert service.stop() == 0
        assert "s3cret" not in service.said.read_text()


def test_a_wrong_route_stops_the_start_and_a_reload_keeps_the_old_routes(tmp_path: Path, receiver: Receiver) -> None:
    service = service_with(tmp_path, "[channels.ops]\nurl = 'slak://s3cret'\n")
    service.start(wait=False)
    assert service.process is not None
    assert service.process.wait(60) == 2
    assert "[channels.ops] in" in service.said.read_text()
    assert "Apprise cannot send to this URL (scheme: slak)" in service.said.read_text()
    with service_with(tmp_path, f"[channels.ops]\nurl = '{receiver.url()}'\ngather_seconds = 0\n") as service:
        (tmp_path / "notify.toml").write_text("[channels.ops]\nurl = 'slak://s3cret'\n")
        os.kill(service.pid, signal.SIGHUP)
        wait_for(lambda: "settings_refused" in service.said.read_text())
        (tmp_path / "notify.toml").write_text(f"[channels.ops]\nurl = '{receiver.url('new')}'\ngather_seconds = 0\n")
        os.kill(service.pid, signal.SIGHUP)
        post(service, "ERR")
        wait_for(lambda: receiver.messages("/new") != [])
        assert "s3cret" not in service.said.read_text()
