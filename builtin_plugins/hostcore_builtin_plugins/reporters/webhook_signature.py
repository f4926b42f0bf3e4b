"""Signatures of posted bodies, as the Standard Webhooks specification (1.0.0, symmetric) has them.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac

from hostcore_hookspecs import InvalidSettings

_PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """The key that a secret stands for: what follows ``whsec_``, decoded from base64; else its UTF-8 bytes.

    :raises InvalidSettings: At ``/secret``.
    """
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise InvalidSettings(
            "/secret",
            f"what follows {_PREFIX} is not base64",
            hint=f"a secret without {_PREFIX} is used as it is",
        ) from None


def signed_headers(key: bytes, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that prove where a body comes from, and when it was sent.

    :param timestamp: Seconds since 1970, of this try.
    :return: ``webhook-timestamp``, and ``webhook-signature``: ``v1,`` and the base64 of the HMAC-SHA256 of
        ``<message_id>.<timestamp>.<body>``.
    """
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {"webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{digest}"}
