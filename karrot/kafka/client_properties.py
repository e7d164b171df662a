"""The properties that a librdkafka client of a cluster is made of."""
# ruff: noqa: PLC0415 (who does not use IAM does not need botocore loaded)

import time
from collections.abc import Mapping, Sequence
from typing import Any

from karrot.kafka.properties_file import is_iam


def complete(given: Mapping[str, str], bootstrap: Sequence[str]) -> dict[str, Any]:
    """With the addresses and, where IAM of Amazon MSK is asked for, a source of tokens.

    Raises `ValueError` where there are no AWS credentials for that, or no region is known.
    """
    properties: dict[str, Any] = {**given, "bootstrap.servers": ",".join(bootstrap)}
    if is_iam(given):
        from karrot.kafka.msk_iam_token import token_source

        properties["sasl.mechanisms"] = "OAUTHBEARER"
        properties["oauth_cb"] = token_source(bootstrap, time.time)
    return properties
