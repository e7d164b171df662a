"""Makes tokens for Amazon MSK's IAM access control: a signed URL, as AWS's own client libraries make it."""

import base64
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
    """The region in the name of an MSK broker."""
    for address in bootstrap:
        if found := re.search(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com", address):
            return found[1]
    return None


def token(credentials: ReadOnlyCredentials, region: str) -> str:
    """The token that one set of credentials gives now; good for a quarter of an hour."""
    request = AWSRequest("GET", f"https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect")
    SigV4QueryAuth(credentials, _SERVICE, region, expires=_LIFETIME_S).add_auth(request)
    signed = f"{request.url}&User-Agent={_AGENT}"
    return base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode()


def token_source(bootstrap: Sequence[str], now_s: Callable[[], float]) -> Callable[[str], tuple[str, float]]:
    """What librdkafka calls for a token and the second at which it ends.

    Credentials are found as AWS's tools find them. Raises `ValueError` where there are none or no region is known.
    """
    session = Session()
    region = region_of(bootstrap) or session.get_config_variable("region")
    if region is None:
        raise ValueError("AWS_MSK_IAM needs a region: set AWS_REGION")
    if session.get_credentials() is None:
        raise ValueError("AWS_MSK_IAM needs credentials, and AWS's usual places have none")

    def source(_config: str) -> tuple[str, float]:
        found = session.get_credentials()
        if found is None:  # a profile that was taken away meanwhile; librdkafka asks again
            raise ValueError("there are no credentials any more")
        return token(found.get_frozen_credentials(), region), now_s() + _LIFETIME_S

    return source
