"""Each warning and error has a stable code, and one key for its cause."""

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from karrot.runbooks_and_remedies import CODES
from tools.log_records import LogRecord, log_records

OTHER_CODES = {"error.code", "problem.code", "self._failure", "failure.code", "outcome.code"}
"""Codes of other lists: of a failure of the tables, an answer to a client, changed files, a step of the pipeline."""
OTHER_KEYS_OF_A_CAUSE = {"cause", "detail", "error", "err", "exception", "message", "msg", "problem", "text", "trouble"}


@pytest.fixture(scope="module")
def records() -> list[LogRecord]:
    return list(log_records())


def test_the_sources_have_log_records(records: list[LogRecord]) -> None:
    assert len(records) > 50
    assert {"commit_refused", "housekeeping_failed", "internal_error", "settings_refused"} <= {e.code for e in records}


def faults_of(record: LogRecord) -> Iterator[str]:
    if record.text is None or "%" in record.text or record.has_arguments:
        yield "write a constant text, and give what varies as values"
    if "code" not in record.values:
        yield "give a stable code"
    elif record.code is None and record.values["code"] not in OTHER_CODES:
        yield f"the code {record.values['code']} is not of a known list"
    elif record.code is not None and re.fullmatch(r"[a-z]+(_[a-z]+)*", record.code) is None:
        yield f"write the code {record.code} in lower-case letters"
    if OTHER_KEYS_OF_A_CAUSE & record.values.keys():
        yield "give the cause as reason"


def test_a_record_has_a_constant_text_and_a_code_and_its_cause_is_the_reason(records: list[LogRecord]) -> None:
    assert [(each.place, fault) for each in records for fault in faults_of(each)] == []


def test_a_code_stands_for_one_text(records: list[LogRecord]) -> None:
    texts = defaultdict(set)
    for each in records:
        texts[each.code].add(each.text)
    assert {code: found for code, found in texts.items() if code and len(found) > 1} == {}


def test_no_code_of_the_log_is_a_problem_code_of_another_meaning(records: list[LogRecord]) -> None:
    assert {each.code for each in records} & CODES.keys() == {"internal_error"}
