"""Reads the TLS certificate and its private key, at the start and when their files change."""

import hashlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from karrot.server.newest_from_files import NewestFromFiles


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate chain with its private key. Two of them are equal if their files have the same content.

    ``context`` is for new connections. The parent process makes it, and the workers inherit it.
    """

    chain: Path
    key: Path
    context: ssl.SSLContext = field(compare=False)
    digest: bytes = field(repr=False)

    @classmethod
    def read(cls, chain: Path, key: Path) -> Self:
        """Read two PEM files. Raises `OSError` or `ValueError` if they are not a certificate and its private key."""
        digest = hashlib.sha256(chain.read_bytes() + b"\0" + key.read_bytes()).digest()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # Without a password here, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(chain, key, password="")
        return cls(chain, key, context, digest)

    def newest(self, count: Callable[..., None]) -> Callable[[], ssl.SSLContext]:
        """A function that returns the context for a new connection, from the files as they are now."""
        certificate = NewestFromFiles(
            (self.chain, self.key),
            lambda: Certificate.read(self.chain, self.key),
            self,
            failure="certificate_unusable",
            count=count,
        )
        return lambda: certificate().context
