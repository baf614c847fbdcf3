"""The service: report a mistake over HTTP or on a page, and the next user gets the right answer."""

from tpatcher.service.app import create_app
from tpatcher.service.serve import serve

__all__ = ["create_app", "serve"]
