"""Makes tokens for Amazon MSK's IAM access control. A token is a signed URL, as in AWS's own client libraries."""

import base64
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, NoCredentialsError, NoRegionError
from botocore.session import Session

from karrot.aws.classify_errors import fault_of
from karrot.kafka.client_properties import NoToken

_SERVICE = "kafka-cluster"
_LIFETIME_S = 900
_AGENT = "karrot"


def region_of(bootstrap: Sequence[str]) -> str | None:
    """The AWS Region in the addresses of MSK brokers. ``None`` if the addresses contain no Region."""
    for address in bootstrap:
        if found := re.search(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com", address):
            return found[1]
    return None


def token(credentials: ReadOnlyCredentials, region: str) -> str:
    """Make a token from credentials. The token is valid for 15 minutes."""
    request = AWSRequest("GET", f"https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect")
    SigV4QueryAuth(credentials, _SERVICE, region, expires=_LIFETIME_S).add_auth(request)
    signed = f"{request.url}&User-Agent={_AGENT}"
    return base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode()


class TokenSource:
    """The function that librdkafka calls for a token and its expiry time. It finds credentials as AWS's tools do.

    ``failure`` is why the last call failed, or ``""`` if the last call succeeded. Raises `ValueError` if there is no
    Region.
    """

    def __init__(self, bootstrap: Sequence[str], now_s: Callable[[], float]) -> None:
        # botocore reads AWS_DEFAULT_REGION and profiles, but not AWS_REGION, which ECS and Lambda set.
        self._region = region_of(bootstrap) or os.environ.get("AWS_REGION")
        self._now_s = now_s
        self._session: Session | None = None
        self.failure = ""
        with suppress(BotoCoreError):  # the first call reports it
            if not (self._region or Session().get_config_variable("region")):
                raise ValueError("AWS_MSK_IAM needs a Region: set AWS_REGION")

    def __call__(self, _config: str = "") -> tuple[str, float]:
        try:
            made = self._made(self._session or Session())
        except Exception as error:
            self._session = None  # the next call reads AWS's configuration again
            fault = fault_of(error)
            self.failure = f"AWS_MSK_IAM has no token: {fault.text}"
            raise NoToken(fault.kind, self.failure) from error
        self.failure = ""
        return made, self._now_s() + _LIFETIME_S

    def _made(self, session: Session) -> str:
        credentials, region = session.get_credentials(), self._region or session.get_config_variable("region")
        if credentials is None:
            raise NoCredentialsError
        if region is None:
            raise NoRegionError
        self._session = session
        return token(credentials.get_frozen_credentials(), region)
