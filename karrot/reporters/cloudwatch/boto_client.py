"""boto3's CloudWatch client: its time limits, its Region and whose credentials it signs with.

Everything else is left to boto3 and its own environment: endpoints (``AWS_ENDPOINT_URL_CLOUDWATCH``), FIPS, dual-stack,
proxies, profiles, and credentials of web identity, containers, pods and instances.
"""

# ruff: noqa: PLC0415 - boto3 takes a second and 30 MB: only the process that publishes loads it

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Unpack, cast

import structlog

from karrot.reporters.cloudwatch.faults import without_secrets
from karrot.reporters.cloudwatch.options import Options
from karrot.reporters.cloudwatch.region import find_region

if TYPE_CHECKING:
    from botocore.config import Config
    from botocore.credentials import Credentials
    from botocore.session import Session
    from types_boto3_cloudwatch.client import CloudWatchClient
    from types_boto3_cloudwatch.type_defs import EmptyResponseMetadataTypeDef, PutMetricDataInputTypeDef

__all__ = ["PutMetricData", "open_client"]

_CONNECT_TIMEOUT_S = 2
_READ_TIMEOUT_S = 5
_ATTEMPTS = 2
_ROLE_SESSION = "karrot"
_log = structlog.get_logger(__name__)


class PutMetricData(Protocol):
    """What the sender needs of a client."""

    def put_metric_data(self, **kwargs: Unpack["PutMetricDataInputTypeDef"]) -> "EmptyResponseMetadataTypeDef":
        """Publish data, all or none."""

    def close(self) -> None:
        """Close the connections."""


def open_client(options: Options, environ: Mapping[str, str]) -> "CloudWatchClient":
    """A client that knows nothing of earlier ones: credentials and configuration files are read again.

    Raises what boto3 raises (`karrot.reporters.cloudwatch.faults.classify`): among others ``NoRegionError``,
    ``ProfileNotFound``, the builtin ``FileNotFoundError`` and ``ValueError``. ``environ`` says the Region; everything
    else boto3 reads from the environment of the process. Call it after the fork, in the process that publishes.
    """
    from botocore.session import Session

    session = Session()
    session.set_default_client_config(_limits())  # so the clients that fetch credentials have them too
    region = find_region(options, environ, session.get_config_variable("region"))
    session.set_config_variable("region", region)  # and the same Region: without it they know AWS_DEFAULT_REGION alone
    if options.iam_role:
        _assume(session, options.iam_role)
    client = session.create_client("cloudwatch")
    _log.info("client opened", region=region, endpoint=without_secrets(client.meta.endpoint_url))
    return cast("CloudWatchClient", client)


def _limits() -> "Config":
    from botocore.config import Config

    # The cursor owns the retry: boto3's own defaults would hold a flush for minutes.
    return Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        user_agent_extra="karrot",
    )


def _assume(session: "Session", role: str) -> None:
    """Let the session sign as a role: its own credentials call STS, first when they are needed, then before expiry."""
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    fetcher = AssumeRoleCredentialFetcher(
        session.create_client,
        _own_credentials(session),
        role,
        extra_args={"RoleSessionName": _ROLE_SESSION},
    )
    # botocore has no public way to give a session credentials that refresh themselves.
    session._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")  # type: ignore[attr-defined]  # noqa: SLF001


def _own_credentials(session: "Session") -> "Credentials":
    from botocore.exceptions import NoCredentialsError

    own = session.get_credentials()
    if own is None:
        raise NoCredentialsError
    return own
