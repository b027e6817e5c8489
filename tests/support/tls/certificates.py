"""Certificates for tests, made by the program `openssl`: an authority, and what it signs for servers and clients."""

from __future__ import annotations

import itertools
import os
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, as files in PEM."""

    cert: Path
    key: Path

    def install(self, at: Signed) -> None:
        """Put these files in the place of others, key first, each as a whole, as tools for renewal do."""
        for mine, there in ((self.key, at.key), (self.cert, at.cert)):
            new = there.with_suffix(".new")
            new.write_bytes(mine.read_bytes())
            os.replace(new, there)


class Authority:
    """A root whose certificate is the file `cert`; its files are in `folder`. `days`: for which its certificates are valid."""

    def __init__(self, folder: Path, name: str = "authority", days: int = 30) -> None:
        folder.mkdir(exist_ok=True)
        self._new = (*_KEY, "-days", str(days))
        self._folder, self._numbers = folder, itertools.count()
        self.cert, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        subject = ("-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign")
        _openssl("req", "-x509", *self._new, "-keyout", str(self._key), "-out", str(self.cert), *subject)

    def signed(self, name: str = "localhost", *, serial: int = 0) -> Signed:
        """A certificate for this name and for 127.0.0.1. `serial`: 0: any."""
        number = next(self._numbers)
        made = Signed(self._folder / f"{number}.pem", self._folder / f"{number}.key")
        signer = ("-CA", str(self.cert), "-CAkey", str(self._key), *(("-set_serial", str(serial)) if serial else ()))
        names = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1")
        basic = ("-addext", "basicConstraints=critical,CA:FALSE")
        _openssl("req", "-x509", *self._new, *signer, *names, *basic, "-keyout", str(made.key), "-out", str(made.cert))
        return made

    def trusting(self, own: Signed | None = None) -> ssl.SSLContext:
        """The context of a client that trusts this authority. `own`: what it shows."""
        context = ssl.create_default_context(cafile=str(self.cert))
        if own is not None:
            context.load_cert_chain(own.cert, own.key)
        return context


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
