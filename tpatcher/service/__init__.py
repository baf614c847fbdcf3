"""Do I know HTTP, or a page? The service: report a mistake, and the next user gets it right."""

from tpatcher.service.app import create_app
from tpatcher.service.serve import serve

__all__ = ["create_app", "serve"]
