"""Flask applications that store nothing: the baselines that the service is compared with."""

from typing import Any

import botocore.session
from flask import Flask, request
from prometheus_client import Gauge


def empty() -> Flask:
    """Flask at its cheapest: reads the body and answers as Karrot does."""
    app = Flask(__name__)

    @app.post("/burrow")
    def receive() -> tuple[str, int]:
        request.get_data()
        return '{"status":"accepted"}', 202

    return app


def first_karrot() -> Flask:
    """What the first Karrot did with an event: a gauge in multiprocess mode, nothing on disk that would survive."""
    app = Flask(__name__)
    lag = Gauge("karrot_consumer_lag", "Total lag.", ["cluster", "consumer"], multiprocess_mode="liveall")

    @app.post("/burrow")
    def receive() -> tuple[str, int]:
        event = request.get_json()["Event"]
        lag.labels(event["Cluster"], event["Group"]).set(event["Result"]["totallag"])
        return '{"status":"accepted"}', 202

    return app


def first_karrot_cloudwatch() -> Flask:
    """How the first Karrot published: 20 data to a call, made inside the request that brought the last of them."""
    app = Flask(__name__)
    client: Any = botocore.session.get_session().create_client("cloudwatch", region_name="us-east-1")
    unsent: list[dict[str, object]] = []

    @app.post("/burrow")
    def receive() -> tuple[str, int]:
        event = request.get_json()["Event"]
        unsent.append({"MetricName": event["Group"], "Value": event["Result"]["totallag"]})
        if len(unsent) >= 20:
            client.put_metric_data(Namespace="Karrot", MetricData=unsent)
            unsent.clear()
        return '{"status":"accepted"}', 202

    return app
