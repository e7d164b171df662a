"""A running service takes a renewed certificate and changed secrets from its files, without a signal."""

import ssl
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from karrot.reload_changed_files import Certificate
from karrot.settings.loading import load, read_secrets_again
from karrot.settings.types import Secret
from support.burrow.recorded_bodies import recorded_body
from support.kubernetes.mounted_secret import MountedSecret
from support.servers.self_signed_certificate import SelfSigned, make_self_signed
from support.service.karrot_service import Service
from support.service.posting_threads import PostingThreads
from support.waiting import wait_for

WARN = recorded_body("karrot_v1.9.5_warn.json")
UNUSABLE = '"changed files cannot be used, the old ones stay"'


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def says(service: Service, code: str) -> int:
    """Count the error lines with this code."""
    lines = service.said.read_text().splitlines()
    return sum(UNUSABLE in line and f'"code":"{code}"' in line.replace('": "', '":"') for line in lines)


def test_changed_tokens_are_valid_in_every_worker_and_unusable_ones_are_not_taken(tmp_path: Path) -> None:
    secret = MountedSecret(tmp_path / "secret", read=b"read-1\n", write=b"write-1\n", old=b"read-0\n")

    def allowed(read: str, write: str) -> set[bool]:
        answers = [service.get("/api/v1/groups", bearer(read)).status for _ in range(8)]
        return {status == 200 for status in answers} | {service.post(WARN, bearer(write)).status == 202}

    service = Service(
        tmp_path / "data",
        api_token_file=str(secret.path("read")),
        api_token_previous_file=str(secret.path("old")),
        burrow_token_file=str(secret.path("write")),
    )
    with service:
        assert allowed("read-1", "write-1") == allowed("read-0", "write-1") == {True}
        secret.update(read=b"read-2\n", write=b"write-2\n", old=b"read-1\n")
        wait_for(lambda: allowed("read-2", "write-2") == {True})
        wait_for(lambda: allowed("read-0", "write-1") == {False})
        # Several answers in a row can all come from the worker that was first to read the files.
        wait_for(lambda: allowed("read-1", "write-2") == {True})

        secret.update(read=b"", write=b"write-3\n", old=b"read-2\n")  # a half-made Secret
        wait_for(lambda: allowed("read-2", "write-2") == {True} and says(service, "secrets_unusable") > 0)
        assert allowed("read-2", "write-3") == {True, False}
        failures = {"name": "karrot_file_reload_failures_total", "files": "secrets"}
        wait_for(lambda: (service.metric(**failures) or 0) > 0)

        secret.update(read=b"read-3\n", write=b"write-3\n", old=b"read-2\n")
        wait_for(lambda: allowed("read-3", "write-3") == {True})
        assert "read-3" not in service.said.read_text()


def test_a_secret_that_became_unusable_does_not_open_the_service(tmp_path: Path) -> None:
    secret = MountedSecret(tmp_path / "secret", token=b"only")
    with Service(tmp_path / "data", burrow_token_file=str(secret.path("token"))) as service:
        secret.update()
        wait_for(lambda: service.post(WARN).status == 401 and says(service, "secrets_unusable") > 0)
        assert service.post(WARN, bearer("only")).status == 202


def test_only_secrets_from_files_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    environ = {"KARROT_API_TOKEN_FILE": str(file), "KARROT_BURROW_TOKEN": "fixed"}
    settings = load(environ).settings
    file.write_text("two\n")
    again = read_secrets_again(settings)
    assert (settings.api_token, again.api_token) == (Secret("one"), Secret("two"))
    assert again.burrow_token == Secret("fixed")
    assert str(file) not in repr(again)


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[SelfSigned, SelfSigned]:
    return make_self_signed(tmp_path), make_self_signed(tmp_path)


def test_two_certificates_are_equal_if_their_files_have_the_same_content(
    tmp_path: Path, pairs: tuple[SelfSigned, SelfSigned]
) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"

    def written(pair: SelfSigned) -> Certificate:
        chain.write_bytes(pair.chain)
        key.write_bytes(pair.key)
        return Certificate.read(chain, key)

    first, second = pairs
    assert written(first) == written(first)
    assert written(first) != written(second)
    with pytest.raises(ssl.SSLError):
        written(SelfSigned(first.chain, second.key))
    with pytest.raises(ssl.SSLError):
        written(SelfSigned(first.chain, b"junk"))


def test_no_event_is_refused_while_certificates_and_tokens_are_replaced_under_load(
    tmp_path: Path, pairs: tuple[SelfSigned, SelfSigned]
) -> None:
    def files(number: int) -> dict[str, bytes]:
        pair = pairs[number % 2]
        tokens = {"token": f"token-{number}".encode(), "previous": f"token-{number - 1}".encode()}
        return {"tls.crt": pair.chain, "tls.key": pair.key} | tokens

    secret = MountedSecret(tmp_path / "secret", **files(0))
    trusting_both = ssl.create_default_context(cadata=b"".join(pair.chain for pair in pairs).decode())
    connect = partial(HTTPSConnection, "localhost", timeout=20, context=trusting_both)
    service = Service(
        tmp_path / "data",
        tls_cert=str(secret.path("tls.crt")),
        tls_key=str(secret.path("tls.key")),
        burrow_token_file=str(secret.path("token")),
        burrow_token_previous_file=str(secret.path("previous")),
    )
    shown = "token-0"

    def accepted(token: str) -> bool:
        with closing(connect(service.port)) as connection:
            connection.request("POST", "/burrow", WARN, bearer(token))
            return connection.getresponse().status == 202

    def has_started() -> bool:
        try:
            return accepted("token-0")
        except OSError:
            return False

    def used_by_both_workers(version: int) -> bool:
        lines = [each for each in service.said.read_text().splitlines() if "changed files are in use" in each]
        return all(sum(files in each for each in lines) == 2 * version for files in ('"secrets"', '"certificate"'))

    service.start(wait=False)
    try:
        wait_for(has_started)
        load = PostingThreads(service, connect=connect, posts=5, headers=lambda: bearer(shown))
        with load:
            for number in range(1, 5):
                secret.update(**files(number))
                wait_for(partial(used_by_both_workers, number))
                load.reach_each()
                shown = f"token-{number}"  # clients change after the service, and before the next version
                load.reach_each()
        assert set(load.answers) == {202}
        assert load.broken == 0
        assert UNUSABLE not in service.said.read_text()
        assert service.stop() == 0
        stored = service.stored_consumers()
        assert {stored[name] for name in load.acknowledged} == {1}
    finally:
        service.kill()


def test_new_connections_get_the_renewed_certificate_and_open_ones_stay(
    tmp_path: Path, pairs: tuple[SelfSigned, SelfSigned]
) -> None:
    first, second = pairs
    secret = MountedSecret(tmp_path / "secret", **{"tls.crt": first.chain, "tls.key": first.key})
    trusting_both = ssl.create_default_context(cadata=(first.chain + second.chain).decode())

    def shown() -> str:
        """Return the certificate that a new connection gets, as PEM."""
        with closing(HTTPSConnection("localhost", service.port, timeout=20, context=trusting_both)) as connection:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            return ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(binary_form=True) or b"")

    def shown_by_all() -> set[str]:
        with suppress(OSError):
            return {shown() for _ in range(8)}
        return set()

    service = Service(
        tmp_path / "data", tls_cert=str(secret.path("tls.crt")), tls_key=str(secret.path("tls.key")), workers="2"
    )
    service.start(wait=False)
    try:
        wait_for(lambda: shown_by_all() == {first.chain.decode()})
        workers = service.workers()
        kept = HTTPSConnection("localhost", service.port, timeout=20, context=trusting_both)
        kept.request("GET", "/healthz")
        assert kept.getresponse().read()

        secret.update(**{"tls.crt": second.chain, "tls.key": first.key})  # the key of another certificate
        wait_for(lambda: shown() == first.chain.decode() and says(service, "certificate_unusable") > 0)
        assert shown_by_all() == {first.chain.decode()}

        secret.update(**{"tls.crt": second.chain, "tls.key": second.key})
        wait_for(lambda: shown_by_all() == {second.chain.decode()})
        kept.request("GET", "/metrics")
        [line] = [each for each in kept.getresponse().read().decode().splitlines() if 'files="certificate"' in each]
        assert float(line.split()[-1]) > 0
        kept.close()
        assert service.workers() == workers
    finally:
        service.kill()
