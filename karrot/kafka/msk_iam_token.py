"""Makes tokens for Amazon MSK's IAM access control. A token is a signed URL, as in AWS's own client libraries."""

import base64
import os
import re
from collections.abc import Callable, Sequence

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.session import Session

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
    """Make a token from credentials. It is valid for a quarter of an hour."""
    request = AWSRequest("GET", f"https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect")
    SigV4QueryAuth(credentials, _SERVICE, region, expires=_LIFETIME_S).add_auth(request)
    signed = f"{request.url}&User-Agent={_AGENT}"
    return base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode()


def token_source(bootstrap: Sequence[str], now_s: Callable[[], float]) -> Callable[[str], tuple[str, float]]:
    """Return the function that librdkafka calls for a token and its time of expiry.

    The function finds credentials as AWS's tools do. Raises `ValueError` if there are no credentials or no Region.
    """
    session = Session()
    # botocore reads AWS_DEFAULT_REGION and profiles, but not AWS_REGION, which ECS and Lambda set.
    region = region_of(bootstrap) or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if region is None:
        raise ValueError("AWS_MSK_IAM needs a Region: set AWS_REGION")
    if session.get_credentials() is None:
        raise ValueError("AWS_MSK_IAM needs AWS credentials, and none were found: set a profile, a role or keys")

    def source(_config: str) -> tuple[str, float]:
        found = session.get_credentials()
        if found is None:  # for example, the profile was removed. librdkafka asks again later
            raise ValueError("the AWS credentials are gone")
        return token(found.get_frozen_credentials(), region), now_s() + _LIFETIME_S

    return source
