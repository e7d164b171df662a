"""Opens pools of connections with Karrot's rules for outgoing requests.

- A proxy comes from ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``, in upper or lower case. Addresses of this machine
  and of its own link never go through a proxy.
- A redirect is not followed: a POST would lose its body, and a token would go to another program.
- A server's certificate must be signed by an authority that OpenSSL trusts (``SSL_CERT_FILE`` or the system's).
- Nothing is repeated. Each caller knows which of its requests may be repeated.

boto3 has the same rules for requests to AWS. The health check asks this machine, without urllib3, which takes longer to
load than the check.
"""

import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed does not know it

from urllib3 import PoolManager, ProxyManager, make_headers
from urllib3.exceptions import ProxyError

TIMEOUT_S = 5.0
"""The limit for the time to connect, and for each wait for data, in seconds."""


def open_pool(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    connections: int = 1,
    environ: Mapping[str, str] = os.environ,
) -> PoolManager:
    """Open a pool for threads, without connecting. A wrong proxy makes each request raise `ProxyError`."""
    # Without retries, urllib3 follows no redirect either.
    asked: dict[str, Any] = {"headers": headers, "timeout": timeout_s, "maxsize": connections, "retries": False}
    proxy = proxy_for(url, environ)
    if proxy is None:
        return PoolManager(**asked)
    try:
        parts = urlsplit(proxy)
        user = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return ProxyManager(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
            proxy_headers=make_headers(proxy_basic_auth=user) if user else None,
            **asked,
        )
    except ValueError:
        return _Unusable(**asked)


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The address of the proxy for a URL. ``None`` if the request goes to the host directly."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    exceptions = _variable(environ, "no_proxy")
    if not proxy or _is_near(host) or _is_in_a_range(host, exceptions):
        return None
    if proxy_bypass_environment(parts.netloc.rpartition("@")[2], {"no": exceptions}):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


class _Unusable(PoolManager):
    """A pool for a proxy whose address cannot be used. The message has no address, which may contain a password."""

    def urlopen(self, _method: str, url: str, **_asked: Any) -> NoReturn:  # type: ignore[override]  # it takes all
        scheme = urlsplit(url).scheme
        reason = f"{scheme.upper()}_PROXY is not the address of an HTTP proxy, such as http://proxy:3128"
        raise ProxyError(reason, ValueError(reason))


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _is_near(host: str) -> bool:
    """Whether a host is this machine, or an agent on its link such as that of ECS."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_link_local


def _is_in_a_range(host: str, exceptions: str) -> bool:
    """Whether a host is an address in a range such as ``10.0.0.0/8``. The standard library knows names alone."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for each in exceptions.split(","):
        try:
            if "/" in each and address in ip_network(each.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
