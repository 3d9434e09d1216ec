"""Certificates for the tests of TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificates(folder: Path) -> Path:
    """Write two self-signed certificates for this machine, ``a`` and ``b``, and their keys."""
    for name in "ab":
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", "/CN=localhost", "-days", "2"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder
