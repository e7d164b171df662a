"""Classifies the exceptions of boto3 by what the sender must do next.

An error while fetching credentials says nothing about the data.
"""

# ruff: noqa: PLC0415 - botocore is loaded with the first client, not with the reporter

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from karrot.aws.errors import Fault, code_and_message, fault_of, kind_of_code, text_of_answer, without_secrets
from karrot.aws.errors import status_of as status_of_answer

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_PUT = "PutMetricData"
_ABOUT_THE_DATA = (
    "InvalidParameter",
    "MissingParameter",
    "MissingRequiredParameter",
    "InvalidFormat",
    "Validation",
    "SerializationException",
)
_NAMED = re.compile(r"metricData\.(?:member\.)?(\d+)", re.IGNORECASE)
"""A datum as CloudWatch names it, counted from 1: ``MetricData.member.15.Value`` or ``metricData.15.member.value``."""
_NAMED_BY_BOTO = re.compile(r"MetricData\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Rejected:
    """CloudWatch rejected the request because of some of its data, so it accepted no data of the request.

    ``members`` are the positions, counted from 0, that the answer names. It is empty if the answer names none.
    """

    text: str
    members: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The request has too many bytes."""

    text: str


Verdict = Fault | Rejected | TooLarge


def classify(error: Exception) -> Verdict:
    """The verdict on an exception that came from opening the client or from a call."""
    from botocore.exceptions import ClientError, ParamValidationError

    refused: Rejected | TooLarge | None = None
    if isinstance(error, ClientError) and error.operation_name == _PUT:
        refused = _refused(error)
    elif isinstance(error, ParamValidationError) and (named := _NAMED_BY_BOTO.findall(str(error))):
        refused = Rejected(without_secrets(str(error).replace("\n", " ")), _members(named, first=0))
    return refused or fault_of(error)


def status_of(error: Exception) -> int | None:
    """The HTTP status of CloudWatch's answer. ``None`` if the exception is not an answer of CloudWatch."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError) and error.operation_name == _PUT:
        return status_of_answer(error) or None
    return None


def _refused(error: "ClientError") -> Rejected | TooLarge | None:
    """The verdict on data that CloudWatch refuses. ``None`` if the data are not the cause."""
    (code, message), status = code_and_message(error), status_of_answer(error)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or code.startswith("RequestEntityTooLarge"):
        return TooLarge(text_of_answer(error))
    # Refuse data only for errors that are known to be about the data. Any other 400 may be about the caller.
    is_about_data = status == HTTPStatus.BAD_REQUEST and code.startswith(_ABOUT_THE_DATA)
    if is_about_data and kind_of_code(code, status) is None:
        return Rejected(text_of_answer(error), _members(_NAMED.findall(message), first=1))
    return None


def _members(numbers: Iterable[str], *, first: int) -> tuple[int, ...]:
    return tuple(sorted({int(number) - first for number in numbers}))
