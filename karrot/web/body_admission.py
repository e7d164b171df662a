"""Decides by a request's headers alone whether its body is worth reading."""

from karrot.server.request_head import RequestHead
from karrot.web import auth
from karrot.web.context import WebContext


def worth_reading(context: WebContext, head: RequestHead) -> bool:
    """Whether the application will read the announced body; what it refuses by the headers it answers without."""
    return (
        _is_webhook(head)
        and head.length is not None
        and head.length <= context.max_body
        and auth.may_post(context.credentials, head.authorization)
    )


def count_refusal(context: WebContext, head: RequestHead, code: str, detail: str) -> None:
    """Count an event that was refused before a thread had it. Other requests are not counted."""
    if _is_webhook(head):
        context.intake.refuse(code, detail)


def _is_webhook(head: RequestHead) -> bool:
    return head.path == "/burrow"
