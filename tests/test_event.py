from support.burrow.lag_events import make_partition


def test_the_log_end_offset_is_the_commit_and_its_lag() -> None:
    assert make_partition(current_lag=40).log_end_offset == 508_140


def test_the_log_end_offset_is_unknown_without_a_commit_or_a_lag() -> None:
    assert make_partition(end=None).log_end_offset is None
    assert make_partition(current_lag=None).log_end_offset is None
