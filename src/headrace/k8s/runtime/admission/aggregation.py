"""Authenticates the API server's aggregation layer, for a program that serves an API behind it.

The API server authorizes a user before it forwards a request. A client that reaches the program's port in another way
has not been authorized. Therefore the API server presents a client certificate. It publishes the certificate's
authority and the allowed common names in a ConfigMap, which every extension API server reads.

Sources: Kubernetes documentation, "Configure the Aggregation Layer"; k8s.io/apiserver, requestheader authentication.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable
from typing import Any

from aiohttp import web
from msgspec import Struct

from ...objects.kinds import AGGREGATION_CONFIG_MAP, AGGREGATION_NAMESPACE
from .certificates import Pair, certificates_in
from .server import tls_context, use_pair

_CONFIG_MAP = f"ConfigMap {AGGREGATION_NAMESPACE}/{AGGREGATION_CONFIG_MAP}"
_AUTHORITY, _NAMES = "requestheader-client-ca-file", "requestheader-allowed-names"

# The reason, for users, why a request is not from the aggregation layer; "" if it is.
Refusal = Callable[[web.Request], str]

log = logging.getLogger(__name__)


class Aggregator(Struct, frozen=True):
    """The client certificates of the aggregation layer.

    `authority` is PEM. `names` are the common names that are allowed, () for any. `why_unknown` is the reason, for
    users, why the certificates are unknown; "" if they are known.
    """

    authority: str = ""
    names: tuple[str, ...] = ()
    why_unknown: str = ""


def aggregator_of(config_map: dict[str, Any] | None) -> Aggregator:
    """The aggregation layer that the ConfigMap describes; None stands for a missing ConfigMap."""
    if config_map is None:
        return Aggregator(why_unknown=f"there is no {_CONFIG_MAP}")
    data = config_map.get("data") or {}
    authority = "".join(certificates_in(data.get(_AUTHORITY) or ""))
    if not authority:
        return Aggregator(why_unknown=f"the {_CONFIG_MAP} has no {_AUTHORITY}: the API server runs without that option")
    try:
        _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), authority)
    except (ssl.SSLError, ValueError) as exc:
        return Aggregator(why_unknown=f"the {_CONFIG_MAP} has a malformed certificate in {_AUTHORITY}: {exc}")
    try:
        names = json.loads(data.get(_NAMES) or "[]")
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return Aggregator(why_unknown=f"the {_CONFIG_MAP} has no list of names in {_NAMES}, which is {data[_NAMES]!r}")
    return Aggregator(authority, tuple(names))


def unreadable(why: str) -> Aggregator:
    """An unknown aggregation layer, because the API server does not let this program read the ConfigMap."""
    return Aggregator(why_unknown=f"the {_CONFIG_MAP} cannot be read: {why}")


class ServerContext(ssl.SSLContext):
    """The TLS context of a listening socket; new connections are made by another context, `latest`."""

    latest: ssl.SSLContext

    def wrap_bio(self, *words: Any, **options: Any) -> ssl.SSLObject:
        return self.latest.wrap_bio(*words, **options)


class Clients:
    """Distinguishes the aggregation layer from other clients of a server with the certificate `pair`.

    A client may connect with or without a certificate. While the aggregation layer is unknown, the server does not ask
    for certificates. `on_change` is called with the reason why the aggregation layer is unknown, "" once it is known.
    """

    def __init__(self, pair: Pair, on_change: Callable[[str], None]) -> None:
        self.context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.latest = tls_context(pair)
        self._pair = pair
        self._on_change = on_change
        self._aggregator = Aggregator(why_unknown=f"the {_CONFIG_MAP} has not been read yet")
        self._is_reported = False

    def use_pair(self, pair: Pair) -> None:
        """Use the certificate of `pair` for new connections. Raises ssl.SSLError."""
        use_pair(self.context.latest, pair)
        self._pair = pair

    def use_aggregator(self, found: Aggregator) -> None:
        """Accept requests of this aggregation layer from now on, and no longer those of the previous one."""
        before, self._aggregator = self._aggregator, found
        if found.authority != before.authority:
            # An authority cannot be removed from a context, so a new one is made. Existing connections keep the old
            # context.
            latest = tls_context(self._pair)
            if found.authority:
                _trust(latest, found.authority)
                latest.verify_mode = ssl.CERT_OPTIONAL
            self.context.latest = latest
        if found.why_unknown != before.why_unknown or not self._is_reported:
            self._is_reported = True
            if found.why_unknown:
                log.warning("requests of the API server's aggregation layer are refused: %s", found.why_unknown)
            self._on_change(found.why_unknown)

    def refusal(self, request: web.Request) -> str:
        """The reason to reject a request, as for `Refusal`.

        The caller must close the connection of a rejected request: the client may be accepted on a new one.
        """
        if self._aggregator.why_unknown:
            return f"only the API server's aggregation layer is answered, and {self._aggregator.why_unknown}"
        tls = request.transport.get_extra_info("ssl_object") if request.transport else None
        # A certificate that was verified before the authority changed may be of the former authority.
        presented = tls.getpeercert() if tls is not None and tls.context is self.context.latest else None
        if not presented:
            return "only the API server's aggregation layer is answered: present its certificate, or ask the API server"
        # Of several common names the last one counts, as it does for extension API servers.
        fields = dict(field for part in presented["subject"] for field in part)
        name, allowed = fields.get("commonName", ""), self._aggregator.names
        if allowed and name not in allowed:
            return f"a client certificate for {', '.join(allowed)} is answered, not one for {name or 'no name'}"
        return ""


def _trust(context: ssl.SSLContext, authority: str) -> None:
    """Accept client certificates that `authority` (PEM) has signed. Raises ssl.SSLError, ValueError."""
    # A bundle may contain an intermediate authority without its root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authority.encode("ascii").decode())
