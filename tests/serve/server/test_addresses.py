"""Where a server may listen: what is wrong is one message."""

from __future__ import annotations

import doctest
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.errors import InputError, ResourceError, UsageError
from dovetail_serve import addresses, origins
from dovetail_serve.addresses import bind_socket, check_options, read_api_key, read_tls, warn_of_exposure
from dovetail_serve.options import ServerOptions
from tests.serve.certificates import make_certificates

USUAL = ServerOptions()


@pytest.mark.parametrize("module", [addresses, origins], ids=["addresses", "origins"])
def test_doctests(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (replace(USUAL, http_port=None, grpc_port=None), "nothing to listen with; expected a port"),
        (replace(USUAL, http_port=70000), "the port of HTTP is wrong; expected 0 to 65535, got 70000"),
        (replace(USUAL, grpc_port=8000), "HTTP and gRPC have the same port; got 8000"),
        (replace(USUAL, tls_key=Path("key.pem")), "TLS needs two files"),
        (replace(USUAL, tls_certificate=Path("c.pem")), "not its key"),
    ],
)
def test_options_that_can_never_be_right(options: ServerOptions, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_options(options)
    assert words in str(caught.value)


def test_two_free_ports_may_be_asked_for() -> None:
    check_options(replace(USUAL, http_port=0, grpc_port=0))


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ResourceError) as caught:
            bind_socket("127.0.0.1", port, option="--http-port")
    assert str(caught.value).startswith(f"127.0.0.1:{port}: the port is taken\n  fix: ")
    assert "--http-port 0" in str(caught.value)


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid", "a b", "x" * 300])
def test_an_address_of_another_machine(host: str) -> None:
    with pytest.raises(UsageError, match="this machine cannot listen there"):
        bind_socket(host, 0, option="--http-port")


def test_a_free_port_is_taken_by_a_socket_on_which_answers_go_out_at_once() -> None:
    with bind_socket("127.0.0.1", 0, option="") as found:
        assert found.getsockname()[1] > 0
        assert found.proto == socket.IPPROTO_TCP


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"))


def test_a_certificate_and_its_key(certificates: Path) -> None:
    options = replace(USUAL, tls_certificate=certificates / "a.pem", tls_key=certificates / "a.key")
    files = read_tls(options)
    assert files is not None
    assert files.certificate.startswith(b"-----BEGIN CERTIFICATE")
    assert read_tls(USUAL) is None


@pytest.mark.parametrize(
    ("certificate", "key"), [("a.pem", "b.key"), ("a.key", "a.pem"), ("a.pem", "c"), ("c", "a.key")]
)
def test_files_that_are_no_certificate_and_key(certificates: Path, certificate: str, key: str) -> None:
    (certificates / "c").write_bytes(b"-----BEGIN CERTIFICATE-----\nnonsense\n")
    options = replace(USUAL, tls_certificate=certificates / certificate, tls_key=certificates / key)
    with pytest.raises(InputError, match="the certificate and the key cannot be used"):
        read_tls(options)


def test_a_certificate_that_is_not_there(certificates: Path) -> None:
    options = replace(USUAL, tls_certificate=certificates / "none.pem", tls_key=certificates / "a.key")
    with pytest.raises(InputError, match=r"none\.pem': the file cannot be read: No such file"):
        read_tls(options)


def test_a_key_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("0123456789abcdef\n", encoding="ascii")
    assert read_api_key(path) == "0123456789abcdef"


@pytest.mark.parametrize(
    "data", [b"", b"short", b"0123456789abcdef\nagain", b"0123456789 abcdef", b"\xff" * 20, b"x" * 5000]
)
def test_what_is_no_key(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(data)
    with pytest.raises(InputError, match="openssl rand") as caught:
        read_api_key(path)
    assert "x" * 20 not in str(caught.value), "a message never shows a key"


def test_whoever_opens_a_server_to_others_is_warned() -> None:
    assert warn_of_exposure(USUAL) is None
    exposed = replace(USUAL, host="0.0.0.0")
    assert "whoever reaches it may run models" in str(warn_of_exposure(exposed))
    assert "load and unload" in str(warn_of_exposure(replace(exposed, allow_control=True)))
    keyed = replace(exposed, api_key="k" * 16)
    assert "in the clear" in str(warn_of_exposure(keyed))
    assert warn_of_exposure(replace(keyed, tls_certificate=Path("c"), tls_key=Path("k"))) is None
