"""Each warning and error has a stable code, and one key for its cause."""

import re
from collections import defaultdict

import pytest

from karrot.known_problems import CODES
from tools.log_records import LogRecord, log_records

RECORDS = list(log_records())
OTHER_CODES = {"error.code", "problem.code", "self._failure", "trouble.code"}
"""Codes of other lists: of a failure of the tables, an answer to a client, changed files, a step of the pipeline."""
OTHER_KEYS_OF_A_CAUSE = {"cause", "detail", "error", "err", "exception", "message", "msg", "problem", "text", "trouble"}


def test_the_sources_have_log_records() -> None:
    assert len(RECORDS) > 50
    assert {"commit_refused", "housekeeping_failed", "internal_error", "settings_refused"} <= {e.code for e in RECORDS}


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: each.place)
def test_a_record_has_a_constant_text_and_a_code_and_its_cause_is_the_reason(record: LogRecord) -> None:
    assert record.text is not None, "write a constant text, and give what varies as values"
    assert "%" not in record.text
    assert not record.has_arguments
    assert "code" in record.values, "give a stable code"
    if record.code is None:
        assert record.values["code"] in OTHER_CODES
    else:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", record.code)
    assert not OTHER_KEYS_OF_A_CAUSE & record.values.keys(), "give the cause as reason"


def test_a_code_stands_for_one_text() -> None:
    texts = defaultdict(set)
    for each in RECORDS:
        texts[each.code].add(each.text)
    assert {code: found for code, found in texts.items() if code and len(found) > 1} == {}


def test_no_code_of_the_log_is_a_problem_code_of_another_meaning() -> None:
    assert {each.code for each in RECORDS} & CODES.keys() == {"internal_error"}
