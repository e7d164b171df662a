"""Fakes the parts of AWS that the real client needs to start: the fake CloudWatch, a small STS, and an agent.

The agent gives a container its credentials.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from support.reporters.cloudwatch_service.request_handler import (
    AwsAnswer,
    HandlerRequest,
    MetricStore,
    ReadRequest,
    Refuse,
    Signature,
    signature,
)
from support.reporters.injected_faults import EXPIRED_TOKEN, Script
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch, ScriptedHandler

_STS_XML = "https://sts.amazonaws.com/doc/2011-06-15/"
_REQUEST_ID = "00000000-0000-4000-8000-000000000000"
_FORM = "application/x-www-form-urlencoded"
_ACCOUNT = "123456789012"
_ROLE = re.compile(r"arn:aws[\w-]*:iam::(\d{12}):role/(?:.*/)?([^/]+)")


@dataclass(frozen=True, slots=True)
class Assumed:
    """An assumed role: the key that assumed it ("" for a web identity), and the new key."""

    role_arn: str
    session: str
    by_access_key: str
    access_key: str
    region: str


def _json(content: object) -> AwsAnswer:
    return AwsAnswer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})


class _AwsHandler(ScriptedHandler):
    """Serves the pages of the agents and STS too, and refuses expired keys.

    It issues temporary credentials that are valid for ``seconds``. Their end is always a time of the machine's clock,
    because the caller's SDK reads it.
    """

    def __init__(self, seconds: float, store: MetricStore, clock_ms: Callable[[], int]) -> None:
        super().__init__(store, clock_ms)
        self._seconds = seconds
        self._lock = threading.Lock()
        self.sts_faults = Script()
        self.issued: list[str] = []
        self.assumed: list[Assumed] = []
        self.expired: set[str] = set()

    def answer(self, request: HandlerRequest) -> AwsAnswer:
        if request.method == "GET":
            return self._page(request.path)
        if request.headers.get("content-type", "").startswith(_FORM):
            parameters = dict(parse_qsl(request.body.decode("utf-8", "replace")))
            if parameters.get("Action", "").startswith("AssumeRole"):
                return self._sts(parameters, signature(request.headers))
        return self.put(request)

    def why_refused(self, sent: ReadRequest, now_ms: int) -> Refuse | None:
        if sent.caller and sent.caller.access_key in self.expired:
            return EXPIRED_TOKEN
        return super().why_refused(sent, now_ms)

    def _page(self, path: str) -> AwsAnswer:
        """Return the answer of the agent."""
        if path.rstrip("/") != "/credentials":
            return AwsAnswer(404)
        key, secret, token, end = self._issue()
        role = f"arn:aws:iam::{_ACCOUNT}:role/task"
        content = {"AccessKeyId": key, "SecretAccessKey": secret, "Token": token, "Expiration": end}
        return _json(content | {"RoleArn": role})

    def _sts(self, parameters: Mapping[str, str], caller: Signature | None) -> AwsAnswer:
        """Answer AssumeRole and AssumeRoleWithWebIdentity."""
        fault = self.sts_faults.take()
        if caller and caller.access_key in self.expired:
            fault = EXPIRED_TOKEN
        if isinstance(fault, Refuse):
            return _xml_error(fault)
        action = parameters["Action"]
        role = _ROLE.fullmatch(parameters.get("RoleArn", ""))
        session = parameters.get("RoleSessionName", "")
        refuse = _why_refused(action, caller, parameters, is_role=role is not None)
        if refuse or role is None:
            return _xml_error(refuse or _NO_ROLE)
        key, secret, token, end = self._issue()
        by = caller or Signature("", "")
        self.assumed.append(Assumed(role.group(), session, by.access_key, key, by.region))
        arn = f"arn:aws:sts::{role.group(1)}:assumed-role/{role.group(2)}/{escape(session)}"
        result = (
            f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{end}</Expiration></Credentials>"
            f"<AssumedRoleUser><AssumedRoleId>AROA{key[4:]}:{escape(session)}</AssumedRoleId><Arn>{arn}</Arn>"
            "</AssumedRoleUser>"
        )
        return _xml_result(action, result)

    def _issue(self) -> tuple[str, str, str, str]:
        """Return a new key, its secret, its token and its end."""
        with self._lock:
            key = f"ASIA{len(self.issued) + 1:016}"
            self.issued.append(key)
        end = (datetime.now(UTC) + timedelta(seconds=self._seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return key, f"secret-of-{key}", f"token-of-{key}", end


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


def _xml_result(action: str, result: str) -> AwsAnswer:
    """The query protocol's 200; ``result`` is XML."""
    return _xml(
        200,
        f'<{action}Response xmlns="{_STS_XML}"><{action}Result>{result}</{action}Result>'
        f"<ResponseMetadata><RequestId>{_REQUEST_ID}</RequestId></ResponseMetadata></{action}Response>",
    )


def _xml_error(refuse: Refuse) -> AwsAnswer:
    """The query protocol's error."""
    blame = "Sender" if refuse.status < 500 else "Receiver"
    return _xml(
        refuse.status,
        f'<ErrorResponse xmlns="{_STS_XML}"><Error><Type>{blame}</Type><Code>{refuse.code}</Code>'
        f"<Message>{escape(refuse.text)}</Message></Error><RequestId>{_REQUEST_ID}</RequestId></ErrorResponse>",
    )


def _xml(status: int, text: str) -> AwsAnswer:
    return AwsAnswer(status, text.encode(), {"Content-Type": "text/xml", "x-amzn-RequestId": _REQUEST_ID})


class FakeAws(ScriptedCloudWatch):
    """A fake CloudWatch that serves credentials too.

    Its credentials are valid for ``credential_seconds`` of the machine's clock. ``issued`` are the access keys,
    ``assumed`` the roles, oldest first.
    """

    handler: _AwsHandler

    def __init__(
        self,
        *,
        port: int = 0,
        clock_ms: Callable[[], int],
        credential_seconds: float = 3600,
    ) -> None:
        handler = partial(_AwsHandler, credential_seconds)
        super().__init__(port=port, clock_ms=clock_ms, handler=handler)
        self.issued, self.assumed = self.handler.issued, self.handler.assumed
        self.sts_faults = self.handler.sts_faults

    @property
    def credentials_url(self) -> str:
        """Return the URL for ``AWS_CONTAINER_CREDENTIALS_FULL_URI``."""
        return f"{self.url}/credentials"

    def expire(self, *access_keys: str) -> None:
        """Answer ExpiredToken to requests signed with one of these keys from now on."""
        self.handler.expired.update(access_keys)
