"""Makes certificates for ``localhost`` with openssl."""

import subprocess
from pathlib import Path
from typing import NamedTuple

_MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    " -addext subjectAltName=DNS:localhost"
)


class SelfSigned(NamedTuple):
    """The content of two PEM files."""

    chain: bytes
    key: bytes


def make_self_signed(folder: Path) -> SelfSigned:
    """Make a new certificate and its private key."""
    chain, key = folder / "made-cert.pem", folder / "made-key.pem"
    subprocess.run([*_MAKE.split(), "-keyout", key, "-out", chain], check=True, capture_output=True)
    return SelfSigned(chain.read_bytes(), key.read_bytes())
