"""Who may do what only the operator of this server may do."""

from __future__ import annotations

import hmac

from actors.gateway.requests.refusals import Refusal

KEY_HEADER = b"x-operator-key"


def check_operator(expected: str, given: str) -> None:
    """Return if the caller has shown the operator's key. expected: `gateway.operator_key`; "": no key opens the door, and an
    operator comes through the run directory, which belongs to the user of the server alone. Raises: Refusal."""
    if not expected:
        detail = (
            "this is for the operator: expected an API key of the role admin (`supervisor keys add --role admin`) or the key of"
            f" gateway.operator_key in {KEY_HEADER.decode()}; on the server's machine `supervisor cache reset`,"
            " `supervisor tenants`, `supervisor drain` and `supervisor cordon` do the same without a key"
        )
        raise Refusal("operator_only", detail)
    if not hmac.compare_digest(expected.encode(), given.encode()):
        detail = f"{KEY_HEADER.decode()}: expected the key of gateway.operator_key, got {'another' if given else 'none'}"
        raise Refusal("operator_only", detail, field=KEY_HEADER.decode())
