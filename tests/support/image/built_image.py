"""An image that the tests built."""

from pathlib import Path
from typing import Any, NamedTuple

from support.image.buildah import Buildah

__all__ = ["CANARY", "ROOT", "Image"]

ROOT = Path(__file__).resolve().parents[3]
CANARY = "canary-5f1b0c7e-in-no-layer"
"""What lies wherever a secret may lie while the image is built."""


class Image(NamedTuple):
    """An image, its configuration, its files and how long it took."""

    tag: str
    config: dict[str, Any]
    root: Path
    buildah: Buildah
    build_seconds: float
