import pytest

from karrot.pipeline.window_arrays.rule_set_parser import RuleSet, read_rule_sets


def test_rule_sets_are_parsed() -> None:
    texts = [
        "calm:intervals=20, allowed-lag=500",
        "min_distance=30,minimum_complete=.5",
        "burrow:",
        "plain",
        "far:min_distance=5m",
    ]
    assert read_rule_sets(texts) == (
        RuleSet("calm", 20, 500),
        RuleSet("min_distance=30,minimum_complete=.5", min_distance=30, minimum_complete=0.5),
        RuleSet("burrow"),
        RuleSet("plain"),
        RuleSet("far", min_distance=300),
    )
    assert read_rule_sets([]) == (RuleSet("burrow", 10, 0, 0, 0),)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ["calm:x=5"],
            (
                "--rules: 'x' is not a rule of Burrow; "
                "the rules are intervals, allowed_lag, min_distance, minimum_complete"
            ),
        ),
        (["intervals=0"], "--rules intervals is '0': it must be a whole number from 1 to 10000"),
        (
            ["min-distance"],
            "--rules min_distance is '': it must be seconds, or a number with s, m, h or d, from 0s to 24h",
        ),
        (["a:intervals"], "--rules intervals is '': it must be a whole number from 1 to 10000"),
        (
            ["a:min_distance=5,min-distance=6"],
            "--rules: 'a:min_distance=5,min-distance=6' has one rule twice; give it once",
        ),
        (["minimum_complete=2"], "--rules minimum_complete is '2': it must be a number from 0 to 1"),
        (["a:intervals=5", "a:"], "--rules: two sets have the name 'a'; give each a name, as in calm:intervals=20"),
    ],
    ids=[
        "an unknown rule",
        "an interval of 0",
        "a rule without a value",
        "a rule without a value in a named set",
        "one rule twice",
        "a share above 1",
        "two sets of one name",
    ],
)
def test_an_invalid_rule_is_refused_with_the_valid_ones(texts: list[str], said: str) -> None:
    with pytest.raises(ValueError, match="--rules") as refused:
        read_rule_sets(texts)
    assert str(refused.value) == said
