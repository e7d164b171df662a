"""Helpers under ``support`` get pytest's readable assertions too."""

import pytest

pytest.register_assert_rewrite("support.eventlog_contract")
