"""The example for Druid has the columns of the JSON topic that `karrot pipeline offsets` writes."""

import json
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "druid"


def test_druid_ingests_the_json_topic_and_the_query_lists_offsets_by_minute_newest_first() -> None:
    spec, query = (
        json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8")) for name in ("ingestion", "query")
    )
    schema, source = spec["spec"]["dataSchema"], spec["spec"]["ioConfig"]
    assert (source["topic"], source["consumerProperties"]) == (
        "consumer_offsets_json",
        {"bootstrap.servers": "kafka:9092"},
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
    assert query["filter"] == {"type": "selector", "dimension": "group", "value": "super-streamer"}
    assert query["dataSource"] == schema["dataSource"] == "consumer_offsets"
    assert {each["name"]: each["fieldName"] for each in query["aggregations"]} == {
        "offset": "offset_sum",
        "commits": "count",
    }
