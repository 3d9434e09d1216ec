"""How a server is started: addresses, limits, and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Limits", "ServerOptions"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may take."""

    body_bytes: int = 64 << 20
    """The whole body of a request, or one gRPC message."""
    tensor_bytes: int = 64 << 20
    """One tensor, also where JSON makes it larger than its text."""
    tensors: int = 256
    """Inputs, and outputs asked for."""
    header_bytes: int = 64 << 10
    """The JSON header before binary tensors."""
    connections: int = 1024
    idle_s: float = 75.0
    """How long a connection may stay without a request, and a request without its next bytes."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where a server listens and what it lets clients do."""

    host: str = "127.0.0.1"
    http_port: int | None = 8000
    """0 for any free port, None for no HTTP."""
    grpc_port: int | None = 8001
    allow_control: bool = False
    """Whether clients may load and unload models."""
    allow_host_code: bool = False
    """Whether plans may bring plugin libraries of the host."""
    api_key: str | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    limits: Limits = Limits()
    drain_s: float = 30.0
    """How long accepted requests have to end when the server stops."""
    poll_s: float = 1.0
    """How often the repository is looked at for changes; 0 for never."""
    log_requests: bool = False
    """Whether each request is a line of the log; those that fail always are."""
    tracing: bool = False
    """Whether requests are spans of OpenTelemetry; needs the extra ``tracing``."""
