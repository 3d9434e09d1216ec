"""The protocol over HTTP: an ASGI application that reads requests, asks the service, and writes responses.

A request comes through ``application`` (routes), ``body`` (bytes within limits), ``request`` (arrays), the service, and
``response`` (bytes again).
"""

from dovetail_serve.http.application import make_app

__all__ = ["make_app"]
