"""Opens boto3's CloudWatch client, and sets its time limits, its Region and the credentials for signing.

boto3's own environment variables control everything else: endpoints (``AWS_ENDPOINT_URL_CLOUDWATCH``), FIPS,
dual-stack, proxies, profiles, and credentials from web identity, containers, pods and instances.
"""

# ruff: noqa: PLC0415 - loading boto3 takes a second and 30 MB, so only the process that publishes loads boto3

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast

import structlog

from karrot.aws.classify_errors import without_secrets
from karrot.settings.options import CloudWatch as Options

if TYPE_CHECKING:
    from botocore.session import Session
    from types_boto3_cloudwatch.client import CloudWatchClient
    from types_boto3_cloudwatch.type_defs import EmptyResponseMetadataTypeDef, PutMetricDataInputTypeDef

_CONNECT_TIMEOUT_S = 2
_READ_TIMEOUT_S = 5
_ATTEMPTS = 2
_ROLE_SESSION = "karrot"
_log = structlog.get_logger(__name__)


class PutMetricData(Protocol):
    """The part of boto3's client that the sender needs."""

    def put_metric_data(self, **kwargs: Unpack["PutMetricDataInputTypeDef"]) -> "EmptyResponseMetadataTypeDef":
        """Publish all of the data, or no datum."""

    def close(self) -> None:
        """Close the connections."""


def open_client(options: Options, environ: Mapping[str, str]) -> "CloudWatchClient":
    """Open a new client. The client reads the credentials and configuration files again.

    Raises boto3's errors (`karrot.aws.classify_errors.fault_of`), for example ``NoRegionError``,
    ``ProfileNotFound``, ``FileNotFoundError`` or ``ValueError``. The Region comes from ``environ``. boto3 reads
    everything else from the environment of the process. Call this function after the fork, in the process that
    publishes.
    """
    from botocore.config import Config
    from botocore.session import Session

    session = Session()
    # boto3's default retries would block a send for minutes. The reporter itself repeats a failed send.
    retries: Any = {"mode": "standard", "total_max_attempts": _ATTEMPTS}
    limits = {"connect_timeout": _CONNECT_TIMEOUT_S, "read_timeout": _READ_TIMEOUT_S, "retries": retries}
    # Also limit the clients that fetch credentials.
    session.set_default_client_config(Config(**limits, user_agent_extra="karrot"))
    region = find_region(options, environ, session.get_config_variable("region"))
    session.set_config_variable("region", region)  # clients for credentials read only AWS_DEFAULT_REGION
    if options.iam_role:
        _assume(session, options.iam_role)
    client = session.create_client("cloudwatch")
    _log.info("client opened", region=region, endpoint=without_secrets(client.meta.endpoint_url))
    return cast("CloudWatchClient", client)


def find_region(options: Options, environ: Mapping[str, str], profile_region: str | None) -> str | None:
    """The Region of ``AWS_REGION``, ``AWS_DEFAULT_REGION``, the default or the profile: the first one that is set.

    ``profile_region`` is the Region that boto3 finds. boto3 does not read ``AWS_REGION``.
    """
    known = environ.get("AWS_REGION", "").strip() or environ.get("AWS_DEFAULT_REGION", "").strip()
    return known or options.default_region or profile_region or None


def _assume(session: "Session", role: str) -> None:
    """Let the session sign as a role. The session calls STS at the first use and before each expiry."""
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    own = session.get_credentials()
    if own is None:
        raise NoCredentialsError
    named = {"RoleSessionName": _ROLE_SESSION}
    fetcher = AssumeRoleCredentialFetcher(session.create_client, own, role, extra_args=named)
    # botocore has no public way to set credentials that refresh themselves on a session.
    session._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")  # type: ignore[attr-defined]  # noqa: SLF001
