"""Flask applications that store nothing: the baselines that the service is compared with."""

from typing import Any

import botocore.session
from flask import Flask, request
from prometheus_client import Gauge


def empty() -> Flask:
    """Make the cheapest Flask application: it reads the body and answers like Karrot."""
    app = Flask(__name__)

    @app.post("/burrow")
    def receive() -> tuple[str, int]:
        request.get_data()
        return '{"status":"accepted"}', 202

    return app


def first_karrot() -> Flask:
    """Make an application like the first Karrot: a gauge in multiprocess mode, without durable storage."""
    app = Flask(__name__)
    lag = Gauge("karrot_consumer_lag", "Total lag.", ["cluster", "consumer"], multiprocess_mode="liveall")

    @app.post("/burrow")
    def receive() -> tuple[str, int]:
        event = request.get_json()["Event"]
        lag.labels(event["Cluster"], event["Group"]).set(event["Result"]["totallag"])
        return '{"status":"accepted"}', 202

    return app


def first_karrot_cloudwatch() -> Flask:
    """Make an application that publishes like the first Karrot: 20 data per call, inside a request."""
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
