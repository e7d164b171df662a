"""The database of Karrot's event log on ECS: its options, the start of the container, and the right to use IAM."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from karrot.render import validation
from karrot.settings import types

PASSWORD_FILE = "KARROT_EVENT_LOG_PASSWORD_FILE"  # noqa: S105 (the name of a setting)
_DIRECTORY = "/dev/shm"  # noqa: S108 (in memory, and writable although the root is read-only)
_FILES = {
    "DATABASE_PASSWORD": (PASSWORD_FILE, f"{_DIRECTORY}/database-password"),
    "DATABASE_CA": ("PGSSLROOTCERT", f"{_DIRECTORY}/database-ca.pem"),
}
"""The setting that names the file of each secret. ``PGSSLROOTCERT`` is a variable of PostgreSQL's client library."""
_PORT = 5432
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_RESOURCE = r"(db|cluster)-[A-Z0-9]{1,60}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EcsDatabase:
    """The options about the database. Without ``event_log``, Karrot uses SQLite, and the other options are wrong."""

    event_log: str | None
    password_secret: str | None
    ca_secret: str | None
    rds_iam: bool
    rds_resource_id: str | None

    @property
    def user(self) -> str:
        """The database's user."""
        return unquote(urlsplit(self.event_log or "").username or "")

    @property
    def ports(self) -> list[int]:
        """The ports of the database's hosts, each once."""
        hosts = urlsplit(self.event_log or "").netloc.rpartition("@")[2].split(",")
        ports = (re.search(r":([0-9]+)$", host) for host in hosts)
        return sorted({int(port[1]) if port else _PORT for port in ports}) if self.event_log else []

    @property
    def secrets(self) -> dict[str, str]:
        """The ARNs of the secrets, by the variable in which the container gets the value."""
        given = {"DATABASE_PASSWORD": self.password_secret, "DATABASE_CA": self.ca_secret}
        return {name: arn for name, arn in given.items() if arn is not None}

    @property
    def settings(self) -> dict[str, str]:
        """Karrot's settings for the database."""
        if self.event_log is None:
            return {}
        told = {"KARROT_EVENT_LOG": self.event_log} | {_FILES[name][0]: _FILES[name][1] for name in self.secrets}
        return told | ({"KARROT_EVENT_LOG_RDS_IAM": "true"} if self.rds_iam else {})

    @property
    def start_script(self) -> str | None:
        """Write each secret into a file that only Karrot's user can read. ECS gives a secret only as a variable."""
        if not self.secrets:
            return None
        written = [f"printf '%s\\n' \"${name}\" > {_FILES[name][1]}" for name in self.secrets]
        return "\n".join(["umask 077", *written, f"unset {' '.join(self.secrets)}", "exec karrot serve", ""])

    @property
    def statement(self) -> dict[str, Any] | None:
        """The right to sign tokens for the database's user. Without a resource id, for all databases of the Region."""
        if not self.rds_iam:
            return None
        database = f":rds-db:${{AWS::Region}}:${{AWS::AccountId}}:dbuser:{self.rds_resource_id or '*'}/{self.user}"
        return {"about": "Log in to the database", "actions": ["rds-db:connect"], "resources": [database]}

    def problems(self) -> Iterator[str]:
        """What is wrong with the options. The URL is not shown, because it may contain a password."""
        if self.rds_resource_id is not None:
            allowed = "the resource id of an instance or of an Aurora cluster, such as cluster-ABC123"
            yield from validation.matching("--rds-resource-id", self.rds_resource_id, _RESOURCE, allowed)
            if not self.rds_iam:
                yield "--rds-resource-id needs --rds-iam"
        if self.event_log is None:
            if self.secrets or self.rds_iam:
                yield "--database-password-secret, --database-ca-secret and --rds-iam need --event-log"
        elif not _is_complete(self.event_log):
            yield "--event-log is wrong: it must be postgresql://USER@HOST/DATABASE without a password"
        else:
            yield from self._contradictions(self.event_log)

    def _contradictions(self, url: str) -> Iterator[str]:
        given = parse_qs(urlsplit(url).query)
        mode = given.get("sslmode", [""])[-1]
        if (self.password_secret is None) is not self.rds_iam:
            yield "--event-log needs --database-password-secret or --rds-iam, and not both"
        if self.rds_iam and mode not in _ENCRYPTED:
            yield "--rds-iam needs sslmode=verify-full in --event-log: RDS takes a token only over TLS"
        if mode.startswith("verify-") and self.ca_secret is None and "sslrootcert" not in given:
            yield (
                f"--event-log has sslmode={mode}, which needs --database-ca-secret: "
                "the certificate of the authority that signed the database's certificate"
            )
        if self.ca_secret and not mode.startswith("verify-"):
            yield "--database-ca-secret needs sslmode=verify-full in --event-log: otherwise, Karrot does not use it"


def _is_complete(url: str) -> bool:
    parts = urlsplit(url)
    is_named = re.fullmatch(r"[\w.%-]+@[^@]+", parts.netloc, re.ASCII) and parts.path.strip("/")
    return bool(is_named) and not list(validation.of_kind(types.event_log, "", url))
