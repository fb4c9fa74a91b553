"""The keys of a cluster, and the Secret that stores them.

A cluster has three CURVE key pairs (ZeroMQ RFC 26), generated at random once: one shared by all brokers, one for the
lead's end of the channel, and one for the operator's end. The Secret has the operator's pair, too, but pods mount only
its public key.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

import zmq

from ..api.fields import MiniCluster
from . import names
from .objects import owned

CURVE_CERT = "curve.cert"
CHANNEL_CERT = "channel.cert"
CHANNEL_CLIENT_CERT = "channel-client.cert"
CHANNEL_CLIENT_PUBLIC = "channel-client.pub"
# The keys of the Secret that are mounted in pods.
MOUNTED = (CURVE_CERT, CHANNEL_CERT, CHANNEL_CLIENT_PUBLIC)


class Keys(NamedTuple):
    """Certificates (ZPL text, ZeroMQ RFC 4) with a public and a secret key, and one public key (Z85)."""

    curve: str
    channel: str
    channel_client: str
    channel_client_public: str

    def __repr__(self) -> str:
        return "Keys(...)"  # keeps the keys out of logs


def fresh_keys() -> Keys:
    """Random key pairs. Raises zmq.ZMQError if libzmq was built without CURVE."""
    client_public, client_secret = zmq.curve_keypair()
    return Keys(
        curve=_certificate(*zmq.curve_keypair()),
        channel=_certificate(*zmq.curve_keypair()),
        channel_client=_certificate(client_public, client_secret),
        channel_client_public=client_public.decode(),
    )


def secret(cluster: MiniCluster, keys: Keys, *, uid: str = "") -> dict[str, Any]:
    """The Secret (v1) of a MiniCluster; `flux.curveCert`, if given, is the brokers' certificate."""
    if cluster.flux.curve_cert:
        keys = keys._replace(curve=cluster.flux.curve_cert)
    return secret_of(owned(cluster, names.secret(cluster), uid), texts(keys))


def texts(keys: Keys) -> dict[str, str]:
    """The keys by the names that they have in a Secret."""
    return {
        CURVE_CERT: keys.curve,
        CHANNEL_CERT: keys.channel,
        CHANNEL_CLIENT_CERT: keys.channel_client,
        CHANNEL_CLIENT_PUBLIC: keys.channel_client_public,
    }


def secret_of(metadata: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    """A Secret (v1) with these texts."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}


def keys_of(found: dict[str, Any]) -> Keys:
    """The keys in the Secret of a cluster. Raises ValueError if one is missing or unreadable."""
    data = found.get("data") or {}
    name = found.get("metadata", {}).get("name", "")
    texts = []
    for key in (CURVE_CERT, CHANNEL_CERT, CHANNEL_CLIENT_CERT, CHANNEL_CLIENT_PUBLIC):
        try:
            texts.append(base64.b64decode(data[key], validate=True).decode())
        except KeyError:
            raise ValueError(
                f"Secret {name} has no key {key}: delete the Secret, and the operator creates a new one"
            ) from None
        except (binascii.Error, UnicodeDecodeError, TypeError):
            raise ValueError(f"Secret {name}: {key} is not valid base64 text") from None
    return Keys(*texts)


def _certificate(public: bytes, private: bytes) -> str:
    return f'metadata\ncurve\n    public-key = "{public.decode()}"\n    secret-key = "{private.decode()}"\n'
