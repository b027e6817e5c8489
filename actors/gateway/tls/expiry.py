"""Until when the server's certificate is valid, as a metric: clients refuse an expired one, and the server hears little."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from messages.access.private_file import Signature, signature_of

_LONG_LENGTH, _VERSION, _UTC_TIME = 0x80, 0xA0, 0x17  # of DER
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def expires_s(pem: str) -> float:
    """The end of validity of the first certificate in a text, in Unix time. Raises: ValueError when there is none."""
    begin, end = pem.find(_BEGIN), pem.find(_END)
    if begin < 0 or end < begin:
        raise ValueError("expected a certificate in PEM, got none")
    (_, certificate), *_ = _parts(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)]))
    (_, to_be_signed), *_ = _parts(certificate)
    fields = [part for part in _parts(to_be_signed) if part[0] != _VERSION]  # serial, algorithm, issuer, validity, ...
    _, (kind, text) = _parts(fields[3][1])
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each value in a DER text. Raises: ValueError when it is cut."""
    place = 0
    while place < len(der):
        tag, length, place = der[place], der[place + 1] if place + 1 < len(der) else -1, place + 2
        if length & _LONG_LENGTH and length >= 0:
            n_bytes = length & ~_LONG_LENGTH
            length, place = int.from_bytes(der[place : place + n_bytes]), place + n_bytes
        if length < 0 or place + length > len(der):
            raise ValueError("expected a whole certificate, got a part of one")
        yield tag, der[place : place + length]
        place += length


class CertificateExpiry(Collector):
    """The metric of one file, which is read again when it changes. A file without a certificate gives no sample."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Signature | None = None
        self._expires_s: float | None = None

    def collect(self) -> Iterable[Metric]:
        """The present value."""
        if (seen := signature_of(self._path)) != self._seen:
            self._seen, self._expires_s = seen, self._read()
        family = GaugeMetricFamily(
            "tardigrade_certificate_expires_seconds", "Unix time at which the server's certificate ceases to be valid."
        )
        if self._expires_s is not None:
            family.add_metric([], self._expires_s)
        yield family

    def _read(self) -> float | None:
        try:
            return expires_s(self._path.read_text())
        except (OSError, ValueError, IndexError):
            return None
