"""Starts moto's S3 with one bucket."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import boto3
import pytest
from moto.server import ThreadedMotoServer

from e2e.stack.downloads import Downloads, default_cache
from karrot.history.delta_tables import s3_options

REGION = "eu-west-1"


class S3(NamedTuple):
    """The bucket ``lag`` on moto's server, with a client and the environment of programs that use it."""

    endpoint: str
    client: Any
    environment: dict[str, str]
    url: str = "s3://lag"

    @property
    def spark_conf(self) -> dict[str, str]:
        """The settings of docs/pipeline.md for an object store that is not Amazon's, and the jars."""
        return {
            "spark.jars": ",".join(map(str, Downloads(default_cache()).spark_s3())),
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
        }

    @property
    def delta_options(self) -> dict[str, str]:
        """What deltalake needs for this store."""
        return s3_options(self.environment)

    def write(self, key: str, content: bytes) -> None:
        """Write an object."""
        self.client.put_object(Bucket="lag", Key=key, Body=content)

    def listed(self, prefix: str) -> dict[str, str]:
        """The keys below a prefix, with their ETags."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="lag", Prefix=prefix)
        return {each["Key"]: each["ETag"] for page in pages for each in page.get("Contents", [])}

    def read(self, key: str) -> bytes | None:
        """The content of an object; ``None`` if it is gone."""
        try:
            content: bytes = self.client.get_object(Bucket="lag", Key=key)["Body"].read()
        except self.client.exceptions.NoSuchKey:
            return None
        return content


@contextmanager
def s3_server() -> Iterator[S3]:
    """Start moto's server with one bucket."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # or it prints a line for each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": REGION}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        client = boto3.Session(region_name=REGION).client("s3", endpoint_url=url)
        client.create_bucket(Bucket="lag", CreateBucketConfiguration={"LocationConstraint": REGION})
        yield S3(url, client, keys | {"AWS_ENDPOINT_URL": url})
        client.close()
    server.stop()
