"""Where a server may listen: its options checked, sockets bound, certificates read; each problem is one message."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail.errors import DovetailError, InputError, ResourceError, UsageError
from dovetail_serve.options import ServerOptions

__all__ = [
    "TlsFiles",
    "bind_socket",
    "check_options",
    "format_address",
    "is_loopback",
    "read_api_key",
    "read_tls",
    "warn_of_exposure",
]

_LARGEST_PORT: Final = 65535
_LEAST_KEY: Final = 16
_LARGEST_KEY_FILE: Final = 4096
_BACKLOG: Final = 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate chain and its key, which fit each other, as PEM."""

    certificate: bytes
    key: bytes


def check_options(options: ServerOptions) -> None:
    """Refuse what no server can be started with.

    Raises:
        UsageError: Something of it can never be right.
    """
    if options.http_port is None and options.grpc_port is None:
        raise UsageError("there is nothing to listen with", expected="a port for HTTP or for gRPC", got="neither")
    for name, port in (("HTTP", options.http_port), ("gRPC", options.grpc_port)):
        if port is not None and not 0 <= port <= _LARGEST_PORT:
            raise UsageError(f"the port of {name} is wrong", expected=f"0 to {_LARGEST_PORT}", got=port)
    if options.http_port == options.grpc_port and options.http_port:
        fix = "give --grpc-port another number"
        raise UsageError("HTTP and gRPC have the same port", got=options.http_port, fix=fix)
    if (options.tls_certificate is None) != (options.tls_key is None):
        missing = "its key" if options.tls_key is None else "the certificate of the key"
        raise UsageError("TLS needs two files", expected="--tls-certificate and --tls-key", got=f"not {missing}")


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach the address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def format_address(host: str, port: int) -> str:
    """An address as URLs and gRPC write it.

    >>> format_address("127.0.0.1", 8000), format_address("::1", 8000)
    ('127.0.0.1:8000', '[::1]:8000')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bind_socket(host: str, port: int, *, option: str) -> socket.socket:
    """A socket that listens at an address; port 0 takes any that is free.

    Raises:
        UsageError: The machine has no such address.
        ResourceError: Somebody else has the port, or it may not be used.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise _no_address(host, error) from error
    family, kind, number, _, address = found[0]
    # asyncio sends small answers at once (TCP_NODELAY) only on sockets that say that they are of TCP.
    listening = socket.socket(family, kind, number)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise _explain(error, host, port, option) from error
    listening.setblocking(False)
    return listening


def _explain(error: OSError, host: str, port: int, option: str) -> DovetailError:
    where = format_address(host, port)
    if error.errno == errno.EADDRINUSE:
        fix = f"end the program that listens there, or choose another port: {option} 0 takes any that is free"
        return ResourceError("the port is taken", where=where, fix=fix)
    if error.errno == errno.EACCES:
        what = "this user may not listen at the port"
        return ResourceError(what, where=where, fix=f"choose a port of at least 1024 with {option}")
    if error.errno == errno.EADDRNOTAVAIL:
        return _no_address(host, error)
    return ResourceError(f"cannot listen: {error.strerror or error}", where=where)


def _no_address(host: str, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or "it is no name of a machine"
    fix = "name an address of this machine: 127.0.0.1 for this machine alone, 0.0.0.0 for all of its networks"
    return UsageError(f"this machine cannot listen there: {reason}", where=f"--host {host}", fix=fix)


def read_tls(options: ServerOptions) -> TlsFiles | None:
    """The certificate and key of the options, tried out; None without TLS.

    Raises:
        InputError: A file cannot be read, is no PEM, or the two do not fit.
    """
    if options.tls_certificate is None or options.tls_key is None:
        return None
    files = TlsFiles(_read_file(options.tls_certificate), _read_file(options.tls_key))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_certificate, options.tls_key, _no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise InputError(
            f"the certificate and the key cannot be used: {reason}",
            where=f"'{options.tls_certificate}', '{options.tls_key}'",
            expected="a certificate chain and its key, without a password, as PEM",
        ) from error
    return files


def _no_password() -> str:
    # Without this OpenSSL would ask for one on the terminal.
    return ""


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror or error}", where=f"'{path}'") from error


def read_api_key(path: Path) -> str:
    """The key in a file: one line of printable characters without spaces.

    Raises:
        InputError: The file cannot be read, or what it holds is no key that protects anything.
    """
    data = _read_file(path)
    expected = f"one line of at least {_LEAST_KEY} printable characters without spaces"
    fix = f"write a new one: openssl rand -hex 32 > {path}"
    key = data[:_LARGEST_KEY_FILE].decode("ascii", errors="replace").strip()
    if len(data) > _LARGEST_KEY_FILE or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError("this is no key", where=f"'{path}'", expected=expected, fix=fix)
    if len(key) < _LEAST_KEY:
        raise InputError("the key is too short", where=f"'{path}'", expected=expected, got=f"{len(key)}", fix=fix)
    return key


def warn_of_exposure(options: ServerOptions) -> str | None:
    """What an operator must know of a server that others reach; None where there is nothing."""
    if is_loopback(options.host):
        return None
    if options.api_key is None:
        control = " and load and unload models" if options.allow_control else ""
        return f"{options.host} is reachable from other machines, and whoever reaches it may run models{control}"
    if options.tls_certificate is None:
        return f"{options.host} is reachable from other machines, and the API key crosses the network in the clear"
    return None
