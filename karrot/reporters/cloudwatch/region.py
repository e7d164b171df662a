"""In which AWS Region to publish."""

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from karrot.reporters.cloudwatch.options import Options

__all__ = ["find_region"]

_METADATA = "ECS_CONTAINER_METADATA_URI_V4"
_METADATA_TIMEOUT_S = 1.0
_METADATA_BYTES = 1024 * 1024
_ARN_REGION = 3
_DIRECT = build_opener(ProxyHandler({}))  # the agent is on this machine, whatever HTTP_PROXY says


def find_region(options: Options, environ: Mapping[str, str], profile_region: str | None) -> str | None:
    """The first that is told of ``AWS_REGION``, ``AWS_DEFAULT_REGION``, the default, the ECS task's, the profile's.

    ``options.default_region`` is the first Karrot's: whoever asked for its defaults has metrics there, wherever the
    task runs. ``profile_region`` is what boto3 knows by itself; ``AWS_REGION`` it does not read. None where nothing
    says a Region. The ECS task metadata is asked, for a second at most, only where nothing before it says one.
    """
    told = environ.get("AWS_REGION", "").strip() or environ.get("AWS_DEFAULT_REGION", "").strip()
    known = told or options.default_region
    return known or _region_of_task(environ.get(_METADATA, "")) or profile_region or None


def _region_of_task(address: str) -> str | None:
    """The Region of the ECS task that this process runs in; None outside ECS and where the agent does not answer."""
    if not address.startswith("http://"):
        return None
    try:
        with _DIRECT.open(f"{address}/task", timeout=_METADATA_TIMEOUT_S) as answer:
            return _region_in(json.loads(answer.read(_METADATA_BYTES)))
    except HTTPError as answer:
        answer.close()
        return None
    except (OSError, HTTPException, ValueError):  # the next source is asked; with none left the Region is missing
        return None


def _region_in(task: Any) -> str | None:
    """``TaskARN`` (``arn:aws:ecs:<region>:…``) says it; ``AvailabilityZone`` (``<region>a``) where there is no ARN."""
    if not isinstance(task, dict):
        return None
    parts = str(task.get("TaskARN", "")).split(":")
    if len(parts) > _ARN_REGION and parts[_ARN_REGION]:
        return parts[_ARN_REGION]
    return str(task.get("AvailabilityZone", "")).rstrip("abcdefghijklmnopqrstuvwxyz") or None
