import json

import pytest
from click.testing import CliRunner, Result

from karrot.cli import main

BROKERS = ["--bootstrap-servers", "kafka-0:9092,[::1]:9092"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["render", "druid", *arguments])


def test_druid_ingests_the_json_topic_and_the_query_lists_offsets_by_minute_newest_first() -> None:
    name = 'super-streamer "漢"\\'
    text = run(*BROKERS, "--group", name).stdout
    spec, end = json.JSONDecoder().raw_decode(text)
    query = json.loads(text[end:])
    alone = [run(*BROKERS, "--group", name, "--print", part).stdout for part in ("ingestion", "query")]
    assert "".join(alone) == text
    schema, source = spec["spec"]["dataSchema"], spec["spec"]["ioConfig"]
    assert (source["topic"], source["consumerProperties"]) == (
        "consumer_offsets_json",
        {"bootstrap.servers": "kafka-0:9092,[::1]:9092"},
    )
    assert schema["dimensionsSpec"]["dimensions"] == ["group", "topic", {"type": "long", "name": "partition"}]
    rolled_up = {each["name"]: (each["type"], each.get("fieldName")) for each in schema["metricsSpec"]}
    assert rolled_up == {
        "count": ("count", None),
        "offset_sum": ("longSum", "offset"),
        "offset_first": ("longFirst", "offset"),
        "offset_last": ("longLast", "offset"),
    }
    assert schema["granularitySpec"]["queryGranularity"] == "MINUTE"
    assert schema["transformSpec"]["filter"] == {
        "type": "not",
        "field": {"type": "selector", "dimension": "offset", "value": None},
    }
    assert (query["queryType"], query["granularity"], query["descending"]) == ("timeseries", "minute", True)
    assert query["filter"] == {"type": "selector", "dimension": "group", "value": name}
    assert query["dataSource"] == schema["dataSource"] == "consumer_offsets"
    assert {each["name"]: each["fieldName"] for each in query["aggregations"]} == {
        "offset": "offset_sum",
        "commits": "count",
    }


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--bootstrap-servers", "kafka"], "--bootstrap-servers is 'kafka': it must be HOST:PORT, several"),
        ([*BROKERS, "--json-topic", "a b"], "--json-topic is 'a b': it must be the name of a topic"),
        ([*BROKERS, "--datasource", "a/b"], "--datasource is 'a/b': it must be a name without slashes and spaces"),
        ([*BROKERS, "--interval", "24h"], "--interval is '24h': it must be as 2026-11-20/2026-11-21"),
    ],
)
def test_an_option_that_druid_would_refuse_gives_one_sentence(given: list[str], sentence: str) -> None:
    result = run("--group", "g", *given)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"karrot: {sentence}")
