"""Reads a number from an answer as KEDA's scaler ``metrics-api`` does.

The rules are those of ``pkg/scalers/metrics_api_scaler.go`` at KEDA's commit 8b4f083 (2026-08-20): every status other
than 200 is an error, and so is a value that is neither a number nor a text. gjson gives null for a missing key.
"""

import json
import re


class KedaError(Exception):
    """KEDA gets no value, so it counts a failure of the trigger."""


def value_of(status: int, body: bytes, location: str) -> float:
    """Return the value at a location that is a key of the answer."""
    assert re.fullmatch(r"\w+", location), "other paths need the rules of gjson"
    if status != 200:
        raise KedaError(f"api returned {status}")
    found = json.loads(body).get(location)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise KedaError(f'valueLocation "{location}" must point to a numeric value')
    return float(found)
