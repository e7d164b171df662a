"""Ends a request with 401 if its sender may not read."""

from flask import request

from karrot.web import auth
from karrot.web.context import web_context
from karrot.web.problems import Problem


def require_reader() -> None:
    """End the request with 401 unless it shows the API token, where one is set."""
    if not auth.may_read(web_context().api_token, request.headers.get("Authorization", "")):
        challenges = [("WWW-Authenticate", value) for value in auth.reader_challenges()]
        raise Problem("unauthorized", "The API token is missing or wrong.", headers=challenges)
