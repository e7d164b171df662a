"""Gets the password for each new connection: from a file, from a command, or as a token of AWS IAM."""

# ruff: noqa: PLC0415 - loading botocore takes a second and 30 MB

import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from karrot.aws.classify_errors import fault_of
from karrot.eventlog.postgres.connections import DatabaseUrl, Password
from karrot.settings.options import Settings

_COMMAND_S = 10.0
_KEPT_S = 5.0
"""A command's output or a token is reused for this time, because several connections may open at once."""

_PORT = 5432
_MOST_BYTES = 64 * 1024


def password_of(settings: Settings, url: DatabaseUrl) -> Password:
    """Return the settings' source of passwords. A call of this source that fails raises `OSError` or `ValueError`."""
    if settings.event_log_password_file:
        return partial(_from_file, settings.event_log_password_file)
    if settings.event_log_password_command:
        arguments = shlex.split(settings.event_log_password_command)
        return KeptPassword(lambda: _from_command(arguments))
    if settings.event_log_rds_iam:
        return KeptPassword(lambda: _rds_token(url))
    return lambda: None


class KeptPassword:
    """Caches the password from ``get`` for some seconds."""

    def __init__(self, get: Callable[[], str]) -> None:
        self._get = get
        self._lock = threading.Lock()
        self._password = ""
        self._until_s = 0.0

    def __call__(self) -> str:
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._password = self._get()
                self._until_s = time.monotonic() + _KEPT_S
            return self._password


def _from_file(path: Path) -> str:
    with path.open("rb") as file:
        return _one_line(file.read(_MOST_BYTES + 1), str(path))


def _from_command(arguments: list[str]) -> str:
    try:
        done = subprocess.run(arguments, capture_output=True, timeout=_COMMAND_S, check=False)  # noqa: S603 - the user's own
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"KARROT_EVENT_LOG_PASSWORD_COMMAND did not end within {_COMMAND_S:g} s") from error
    if done.returncode:
        said = "".join(f": {line}" for line in done.stderr.decode(errors="replace").strip().splitlines()[-1:])
        raise ValueError(f"KARROT_EVENT_LOG_PASSWORD_COMMAND failed with exit code {done.returncode}{said}")
    return _one_line(done.stdout, "the output of KARROT_EVENT_LOG_PASSWORD_COMMAND")


def _one_line(content: bytes, what: str) -> str:
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{what} has more than {_MOST_BYTES} bytes: it must be the password for PostgreSQL alone")
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} is not text in UTF-8: it must be the password for PostgreSQL") from error
    if not text:
        raise ValueError(f"{what} is empty: it must be the password for PostgreSQL")
    if re.search(r"[\0\r\n]", text):  # libpq would cut the password at a NUL
        raise ValueError(f"{what} has more than one line: it must be the password for PostgreSQL alone")
    return text


def _rds_token(url: DatabaseUrl) -> str:
    """Make a token for the first host of the URL, signed with the credentials that AWS's tools find."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import Session

    host = str(url.parameters.get("host", "localhost")).split(",")[0]
    port = int(str(url.parameters.get("port") or _PORT).split(",")[0])
    try:
        session = Session()
        # botocore reads AWS_DEFAULT_REGION and profiles, but not AWS_REGION, which ECS and Lambda set.
        region = os.environ.get("AWS_REGION") or session.get_config_variable("region")
        if region is None:
            raise ValueError("KARROT_EVENT_LOG_RDS_IAM needs a Region: set AWS_REGION")
        client: Any = session.create_client("rds", region_name=region)  # botocore adds the method at run time
        token: str = client.generate_db_auth_token(host, port, str(url.parameters.get("user", "")), Region=region)
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"KARROT_EVENT_LOG_RDS_IAM: {fault_of(error).text}") from error
    return token
