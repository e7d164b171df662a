"""A client of Burrow's REST API v3: clusters, topics, groups and Burrow's configuration."""

from karrot.burrow.client.config import (
    ClientProfile,
    ClusterModule,
    ConsumerModule,
    EvaluatorModule,
    GeneralConfig,
    HttpServerConfig,
    LoggingConfig,
    MainConfig,
    NotifierModule,
    SaslProfile,
    StorageModule,
    TlsProfile,
    ZooKeeperConfig,
)
from karrot.burrow.client.errors import BurrowError, NotFound, Unaddressable, Unavailable, UnknownCall, Unreadable
from karrot.burrow.client.http import Asking
from karrot.burrow.client.replies import StoredPartition
from karrot.burrow.client.rest import Burrow

__all__ = [
    "Asking",
    "Burrow",
    "BurrowError",
    "ClientProfile",
    "ClusterModule",
    "ConsumerModule",
    "EvaluatorModule",
    "GeneralConfig",
    "HttpServerConfig",
    "LoggingConfig",
    "MainConfig",
    "NotFound",
    "NotifierModule",
    "SaslProfile",
    "StorageModule",
    "StoredPartition",
    "TlsProfile",
    "Unaddressable",
    "Unavailable",
    "UnknownCall",
    "Unreadable",
    "ZooKeeperConfig",
]
