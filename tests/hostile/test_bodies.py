"""Any posted body gives a plain answer, no traceback, and an exposition that every parser reads."""

from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from support.burrow.malformed_bodies import ALLOWED_STATUSES, malformed_bodies
from support.service.bulk_posts import assert_metrics_parse, post_all
from support.service.karrot_service import Service

PARSED_EVERY = 200


@pytest.mark.parametrize("bodies", [800, pytest.param(4_000, marks=pytest.mark.deep)])
def test_no_random_body_harms_the_service_or_its_metrics(tmp_path: Path, bodies: int) -> None:
    made = malformed_bodies(Random(3))
    answers = Counter[tuple[int, str]]()
    with Service(tmp_path / "data", partition_metrics="true", topic_metrics="true") as service:
        for _ in range(bodies // PARSED_EVERY):
            answers += post_all(service, islice(made, PARSED_EVERY))
            assert_metrics_parse(service)
        assert {status for status, _ in answers} <= ALLOWED_STATUSES
        assert "Traceback" not in service.said.read_text()
    assert min(answers[202, ""], answers[400, "invalid_field"]) > bodies // 20
