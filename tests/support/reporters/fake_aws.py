"""Fakes as much of AWS as the real client needs to start: the fake CloudWatch, a small STS and two agents.

The agents are a container's credentials endpoint and an ECS task's metadata.
"""

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from xml.sax.saxutils import escape

from karrot.demo.cloudwatch.fake_cloudwatch import FakeCloudWatch
from karrot.demo.cloudwatch.injected_faults import EXPIRED_TOKEN, Hang, Refuse, Reset, Script
from karrot.demo.cloudwatch.request_handler import (
    AwsAnswer,
    HandlerReply,
    Protocol,
    Signature,
    error,
    json_page,
    xml_result,
)

STS_XML = "https://sts.amazonaws.com/doc/2011-06-15/"
_ACCOUNT = "123456789012"
_ROLE = re.compile(r"arn:aws[\w-]*:iam::(\d{12}):role/(?:.*/)?([^/]+)")


@dataclass(frozen=True, slots=True)
class Assumed:
    """A role that was assumed: by which key, "" for a web identity, and which key was given for it."""

    role_arn: str
    session: str
    by_access_key: str
    access_key: str
    region: str


def task_metadata(region: str) -> AwsAnswer:
    """What ``$ECS_CONTAINER_METADATA_URI_V4/task`` answers, as far as a region is looked for in it."""
    return json_page(
        {
            "Cluster": "default",
            "TaskARN": f"arn:aws:ecs:{region}:{_ACCOUNT}:task/default/158d1c8083dd49d6b527399fd6414f5c",
            "Family": "karrot",
            "Revision": "1",
            "DesiredStatus": "RUNNING",
            "KnownStatus": "RUNNING",
            "AvailabilityZone": f"{region}a",
            "LaunchType": "FARGATE",
            "Containers": [],
        }
    )


class Identity:
    """Gives out temporary credentials that hold for ``seconds``, and knows which of them were expired by hand.

    Their end is a moment of the machine's clock, whatever clock the points are judged by: the caller's SDK reads it.
    """

    def __init__(self, seconds: float, region: str) -> None:
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._issued: list[str] = []
        self._expired: set[str] = set()
        self._assumed: list[Assumed] = []
        self.seconds = seconds
        self.region = region
        self.faults = Script()

    @property
    def issued(self) -> list[str]:
        """Access keys, oldest first."""
        with self._lock:
            return list(self._issued)

    @property
    def assumed(self) -> list[Assumed]:
        """Roles, in the order in which they were assumed."""
        with self._lock:
            return list(self._assumed)

    def expire(self, *access_keys: str) -> None:
        """Requests signed with one of them are answered ExpiredToken from now on."""
        with self._lock:
            self._expired.update(access_keys)

    def is_expired(self, access_key: str) -> bool:
        """Whether it was expired."""
        with self._lock:
            return access_key in self._expired

    def page(self, path: str) -> AwsAnswer | None:
        """What the agents answer."""
        match path.rstrip("/").split("/"):
            case ["", "credentials"]:
                return self._container_credentials()
            case ["", "v4", _, "task"]:
                return task_metadata(self.region)
            case _:
                return None

    def _container_credentials(self) -> AwsAnswer:
        key = self._issue()
        return json_page(
            {
                "AccessKeyId": key,
                "SecretAccessKey": _secret(key),
                "Token": _token(key),
                "Expiration": self._end(),
                "RoleArn": f"arn:aws:iam::{_ACCOUNT}:role/task",
            }
        )

    def sts(self, parameters: Mapping[str, str], caller: Signature | None) -> HandlerReply:
        """AssumeRole and AssumeRoleWithWebIdentity."""
        fault = self.faults.take()
        if caller and self.is_expired(caller.access_key):
            fault = EXPIRED_TOKEN
        if isinstance(fault, Refuse):
            return HandlerReply(error(Protocol.QUERY, fault, namespace=STS_XML))
        if isinstance(fault, Hang | Reset) and not fault.after_keeping:
            return HandlerReply(AwsAnswer(200), fault)  # never sent: nobody assumed the role
        return HandlerReply(self._assume(parameters, caller), fault)

    def _assume(self, parameters: Mapping[str, str], caller: Signature | None) -> AwsAnswer:
        action = parameters["Action"]
        role = _ROLE.fullmatch(parameters.get("RoleArn", ""))
        session = parameters.get("RoleSessionName", "")
        refuse = _why_refused(action, caller, parameters, is_role=role is not None)
        if refuse or role is None:
            return error(Protocol.QUERY, refuse or _NO_ROLE, namespace=STS_XML)
        key = self._issue()
        by = caller.access_key if caller else ""
        with self._lock:
            self._assumed.append(Assumed(role.group(), session, by, key, caller.region if caller else ""))
        arn = f"arn:aws:sts::{role.group(1)}:assumed-role/{role.group(2)}/{escape(session)}"
        result = (
            f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{_secret(key)}</SecretAccessKey>"
            f"<SessionToken>{_token(key)}</SessionToken><Expiration>{self._end()}</Expiration></Credentials>"
            f"<AssumedRoleUser><AssumedRoleId>AROA{key[4:]}:{escape(session)}</AssumedRoleId><Arn>{arn}</Arn>"
            "</AssumedRoleUser>"
        )
        return xml_result(action, result, STS_XML)

    def _issue(self) -> str:
        with self._lock:
            key = f"ASIA{next(self._numbers):016}"
            self._issued.append(key)
            return key

    def _end(self) -> str:
        return (datetime.now(UTC) + timedelta(seconds=self.seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


_NO_ROLE = Refuse(400, "ValidationError", "ValidationError", "RoleArn is not a valid ARN of a role")
_NO_SESSION = Refuse(400, "ValidationError", "ValidationError", "RoleSessionName must have 2 to 64 characters")
_NO_TOKEN = Refuse(400, "InvalidIdentityToken", "InvalidIdentityToken", "No web identity token")
_UNSIGNED = Refuse(403, "MissingAuthenticationToken", "MissingAuthenticationToken", "Request is missing a signature")


def _why_refused(
    action: str, caller: Signature | None, parameters: Mapping[str, str], *, is_role: bool
) -> Refuse | None:
    if action == "AssumeRoleWithWebIdentity":
        if not parameters.get("WebIdentityToken"):
            return _NO_TOKEN
    elif caller is None:
        return _UNSIGNED
    if not re.fullmatch(r"[\w+=,.@-]{2,64}", parameters.get("RoleSessionName", "")):
        return _NO_SESSION
    return None if is_role else _NO_ROLE


def _secret(key: str) -> str:
    return f"secret-of-{key}"


def _token(key: str) -> str:
    return f"token-of-{key}"


class FakeAws(FakeCloudWatch):
    """A fake CloudWatch that serves the credentials too.

    ``region`` is that of the ECS task whose metadata it serves. Credentials it gives out hold for
    ``credential_seconds`` of the machine's clock.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        clock_ms: Callable[[], int],
        region: str = "eu-west-1",
        names_members: bool = True,
        credential_seconds: float = 3600,
    ) -> None:
        self._identity = Identity(credential_seconds, region)
        super().__init__(port=port, clock_ms=clock_ms, names_members=names_members, credentials=self._identity)

    @property
    def credentials_url(self) -> str:
        """For ``AWS_CONTAINER_CREDENTIALS_FULL_URI``."""
        return f"{self.url}/credentials"

    @property
    def task_metadata_url(self) -> str:
        """For ``ECS_CONTAINER_METADATA_URI_V4``."""
        return f"{self.url}/v4/karrot"

    def clear(self) -> None:
        """No fault stands or is scripted any more, for STS neither."""
        super().clear()
        self.sts_faults.clear()

    @property
    def sts_faults(self) -> Script:
        """The faults of AssumeRole."""
        return self._identity.faults

    @property
    def issued(self) -> list[str]:
        """Access keys that were given out, oldest first."""
        return self._identity.issued

    @property
    def assumed(self) -> list[Assumed]:
        """Roles that were assumed, oldest first."""
        return self._identity.assumed

    def expire(self, *access_keys: str) -> None:
        """Requests signed with one of these keys are answered ExpiredToken from now on."""
        self._identity.expire(*access_keys)
