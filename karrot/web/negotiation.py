"""What the client would rather have."""

from flask import request

__all__ = ["gzip_accepted", "html_asked"]


def html_asked() -> bool:
    """Whether HTML is asked for: preferred to JSON, not merely admitted by ``*/*``."""
    accepted = request.accept_mimetypes
    return accepted["text/html"] > accepted["application/json"]


def gzip_accepted() -> bool:
    """Whether the client takes gzip."""
    return request.accept_encodings["gzip"] > 0
