"""What the service is measured against: WSGI applications that keep nothing."""

from flask import Flask, request
from prometheus_client import Gauge

__all__ = ["empty", "first_karrot"]


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
