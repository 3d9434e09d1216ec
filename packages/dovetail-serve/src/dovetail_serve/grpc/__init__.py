"""The protocol over gRPC: ``inference.GRPCInferenceService`` and the standard health service.

A request comes through ``server`` (methods), ``request`` (arrays), the service, and ``response`` (bytes again). The
messages are described in ``messages`` and kept in a pool of their own.
"""

from dovetail_serve.grpc.server import make_grpc_server

__all__ = ["make_grpc_server"]
