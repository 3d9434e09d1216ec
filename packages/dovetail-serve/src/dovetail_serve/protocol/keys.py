"""The API key: whether what a client sent is the one that the server was started with."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from dovetail_serve.errors import UnauthorizedError

__all__ = ["check_key"]


def check_key(key: str, headers: Mapping[str, str | bytes]) -> None:
    """Raise unless ``Authorization: Bearer`` or ``X-Api-Key`` has the key; the names are in small letters.

    >>> check_key("secret", {"x-api-key": "secret"})
    >>> check_key("secret", {"authorization": "Bearer secret"})
    """
    given = _key_from(headers)
    # A comparison that stops at the first difference would tell a patient client the key.
    if not hmac.compare_digest(given, key.encode()):
        raise UnauthorizedError(
            "the API key is wrong" if given else "the API key is missing",
            fix="send the header 'Authorization: Bearer KEY' or 'X-Api-Key: KEY'",
        )


def _key_from(headers: Mapping[str, str | bytes]) -> bytes:
    scheme, _, token = _bytes_of(headers.get("authorization", b"")).partition(b" ")
    if scheme.lower() == b"bearer":
        return token.strip()
    return _bytes_of(headers.get("x-api-key", b""))


def _bytes_of(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
