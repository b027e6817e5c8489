"""The end of a certificate's validity is in the metrics, and follows the file."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from actors.gateway.tls.expiry import CertificateExpiry, expires_s
from tests.support.tls.certificates import Authority


def shown(metric: CertificateExpiry) -> list[float]:
    return [sample.value for family in metric.collect() for sample in family.samples]


def by_openssl(path: Path) -> float:
    command = ["openssl", "x509", "-noout", "-enddate", "-in", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return ssl.cert_time_to_seconds(text.partition("=")[2].strip())


def test_it_is_what_openssl_says(tmp_path: Path) -> None:
    signed = Authority(tmp_path / "ca").signed()
    assert expires_s(signed.cert.read_text()) == by_openssl(signed.cert)
    late = tmp_path / "late.pem"  # years from 2050 on have another form
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "20000", "-subj", "/CN=late"]
    subprocess.run([*command, "-keyout", str(tmp_path / "late.key"), "-out", str(late)], check=True, capture_output=True)
    assert expires_s(late.read_text()) == by_openssl(late)


def test_it_follows_the_file(tmp_path: Path) -> None:
    authority, path = Authority(tmp_path / "ca"), tmp_path / "server.pem"
    metric = CertificateExpiry(path)
    assert shown(metric) == []  # there is no file yet
    path.write_bytes(authority.signed().cert.read_bytes())
    assert shown(metric) == [by_openssl(path)]
    path.write_text("no certificate")
    assert shown(metric) == []


def test_a_part_of_a_certificate_is_none(tmp_path: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert(Authority(tmp_path / "ca").cert.read_text())
    for length in range(1, 120, 7):
        with pytest.raises((ValueError, IndexError)):
            expires_s(ssl.DER_cert_to_PEM_cert(der[:length]))
