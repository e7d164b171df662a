"""A client for Burrow's REST API v3: it reads clusters, topics, groups and Burrow's configuration."""

from karrot.burrow.client.http import Asking, BurrowError, NotFound, Unaddressable, Unavailable, UnknownCall
from karrot.burrow.client.replies import (
    ClusterModule,
    ConsumerModule,
    EvaluatorModule,
    NotifierModule,
    StorageModule,
    ZooKeeperConfig,
)
from karrot.burrow.client.rest import Burrow

__all__ = [
    "Asking",
    "Burrow",
    "BurrowError",
    "ClusterModule",
    "ConsumerModule",
    "EvaluatorModule",
    "NotFound",
    "NotifierModule",
    "StorageModule",
    "Unaddressable",
    "Unavailable",
    "UnknownCall",
    "ZooKeeperConfig",
]
