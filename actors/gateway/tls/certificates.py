"""The certificate, the key and the certificates of clients' authorities, read again when their files change.

A connection keeps what it began with. Files that cannot be used leave the old ones in force; a gateway that starts with such
files completes no handshake until they are mended.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

import structlog

from actors.gateway.settings import GatewaySettings
from messages.access.followed_files import FollowedFiles
from messages.access.private_file import FileRefused
from messages.errors import ConfigError

_PROTOCOLS = ["http/1.1"]


def tls_context(settings: GatewaySettings) -> ssl.SSLContext:
    """A context with what the files hold now: TLS 1.2 and 1.3, the library's own choice of ciphers, no compression.

    Raises: ConfigError that names the setting whose file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(_PROTOCOLS)
    _check_readable("tls_cert", settings.tls_cert)
    _check_readable("tls_key", settings.tls_key)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_no_passphrase)
    except _PassphraseWanted:
        raise ConfigError(f"gateway.tls_key: expected a key without a passphrase, got {settings.tls_key}") from None
    except (ssl.SSLError, OSError) as error:
        what = "expected a certificate in PEM and the private key that belongs to it"
        raise _kind_of(error)(
            f"gateway.tls_cert: {what}, got {settings.tls_cert}, {settings.tls_key} ({_why(error)})"
        ) from None
    if settings.tls_client_ca:
        _check_readable("tls_client_ca", settings.tls_client_ca)
        try:
            context.load_verify_locations(settings.tls_client_ca)
        except (ssl.SSLError, OSError) as error:
            what = f"expected certificates in PEM, got {settings.tls_client_ca} ({_why(error)})"
            raise _kind_of(error)(f"gateway.tls_client_ca: {what}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Certificates:
    """The present context. `refresh` must be called about once a second."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        paths = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._files = FollowedFiles([Path(path) for path in paths if path])
        self._is_first = True
        self.context: ssl.SSLContext | None = None  # None: the files could never be used
        self.refresh()

    def refresh(self) -> None:
        """Read the files again if one of them has changed."""
        if not self._files.are_due():
            return
        is_first, self._is_first = self._is_first, False
        try:
            self.context = tls_context(self._settings)
        except ConfigError as error:
            if not self._files.were_not_read(error):
                return
            what = "no TLS handshake is completed" if self.context is None else "the old ones count"
            structlog.get_logger().error(f"certificates not read, {what}", reason=str(error))
            return
        self._files.were_read()
        if not is_first:
            structlog.get_logger().info("certificates read again", certificate=self._settings.tls_cert)


class _PassphraseWanted(Exception):
    """A key cannot be read without a passphrase, which nobody is there to give."""


def _no_passphrase() -> NoReturn:
    raise _PassphraseWanted


def _check_readable(setting: str, path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise FileRefused(f"gateway.{setting}: expected a file that can be read, got {path} ({error.strerror})") from None


def _kind_of(error: OSError) -> type[ConfigError]:
    return ConfigError if isinstance(error, ssl.SSLError) else FileRefused


def _why(error: OSError) -> str:
    return (error.reason if isinstance(error, ssl.SSLError) else error.strerror) or "no PEM"
