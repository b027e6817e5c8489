"""What `supervisor bench` says of a server that it cannot ask."""

from __future__ import annotations

import http.server
import ssl
import threading
from pathlib import Path

from click.testing import CliRunner

from supervisor.__main__ import main
from tests.support.tls.certificates import Authority


def test_a_certificate_that_is_not_trusted_is_told_with_the_way_to_trust_it(tmp_path: Path) -> None:
    signed = Authority(tmp_path / "tls").signed()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.cert, signed.key)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"https://127.0.0.1:{server.server_port}"
        done = CliRunner().invoke(main, ["bench", url])
        thread.join(60)
    assert done.exit_code == 6
    assert done.stderr.startswith(f"supervisor: {url}: ")
    assert done.stderr.endswith("; SSL_CERT_FILE=FILE in the environment names who has signed its certificate\n")
