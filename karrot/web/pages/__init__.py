"""The pages: every group, one group, what was refused. Plain HTML, whole without a script."""

from karrot.web.pages.routes import PAGE_SIZE, routes
from karrot.web.pages.state import EXTENSION, Shared

__all__ = ["EXTENSION", "PAGE_SIZE", "Shared", "routes"]
