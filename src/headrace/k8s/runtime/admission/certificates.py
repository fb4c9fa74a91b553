"""Certificates of the admission webhook: makes pairs and computes their renewal time.

Each pair has its own certification authority, whose key is discarded at once: it signs one serving certificate and no
other. Before a pair is replaced, the API server is made to trust the new authority in addition to the old one, so that
the replicas of an operator can change over one by one. Sources: RFC 5280, admissionregistration.k8s.io/v1 (`caBundle`).
The library `cryptography` is used because the image of the operator has no openssl. Pure but for random keys.
"""

from __future__ import annotations

import base64
import ipaddress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)
# Tolerates clocks that differ between nodes.
_BEFORE = timedelta(hours=1)
_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"


class Pair(NamedTuple):
    """PEM texts: the certificate of the authority, the serving certificate, and the latter's private key."""

    authority: str
    certificate: str
    key: str


class UnusablePair(ValueError):
    """A stored pair that cannot be used; the message has the reason."""


def make_pair(hosts: list[str], now: datetime, lifetime: timedelta = LIFETIME) -> Pair:
    """A pair for a server with the names or addresses `hosts`, valid for `lifetime` from `now` (UTC)."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    # If a bundle had two authorities with the same name, some clients would check the signature against the wrong one.
    common_name = f"headrace admission webhook {identifier.digest.hex()[:16]}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    authority = (
        _builder(name, name, authority_key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    # The common name is limited to 64 characters and is not used: clients check the alternative names (RFC 6125).
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headrace-webhook")])
    certificate = (
        _builder(subject, name, key.public_key(), now, lifetime)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(_pem(authority), _pem(certificate), secret.decode())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + lifetime)
    )


def _usage(**used: bool) -> x509.KeyUsage:
    unused = dict.fromkeys(
        (
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
            *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
        ),
        False,
    )
    return x509.KeyUsage(**{**unused, **used})


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def renewal_time(pair: Pair, hosts: list[str]) -> datetime:
    """The time at which a pair must be replaced: after two thirds of its lifetime (UTC).

    A pair is unusable if it is not valid for each of `hosts`, if key and certificate do not belong together, or if one
    of its parts is malformed. Raises UnusablePair.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        authority = x509.load_pem_x509_certificate(pair.authority.encode())
        key = serialization.load_pem_private_key(pair.key.encode(), None)
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception as exc:  # cryptography raises a dozen types for malformed text
        raise UnusablePair(f"the stored certificate cannot be used: {exc or type(exc).__name__}") from None
    if _public(key) != _public(certificate):
        raise UnusablePair("the stored certificate and key are no pair")
    missing = [host for host in hosts if _general_name(host) not in names]
    if missing:
        raise UnusablePair(f"the stored certificate is not for {', '.join(missing)}")
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def _public(holder: Any) -> bytes:
    encoded: bytes = holder.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded


# --- the Secret, and the API server's trust


def secret_data(pair: Pair) -> dict[str, str]:
    """The `data` of a Secret of type kubernetes.io/tls, with the authority as cert-manager adds it."""
    parts = {"ca.crt": pair.authority, "tls.crt": pair.certificate, "tls.key": pair.key}
    return {key: encoded(text) for key, text in parts.items()}


def pair_of(secret: dict[str, Any]) -> Pair:
    """The pair in a Secret made from `secret_data`; missing or malformed parts are ""."""
    data = secret.get("data") or {}
    return Pair(*(decoded(data.get(key)) for key in ("ca.crt", "tls.crt", "tls.key")))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: Any) -> str:
    """Decoded base64 text; "" for malformed text."""
    try:
        return base64.b64decode(text or "", validate=True).decode()
    except (ValueError, TypeError):
        return ""


def certificates_in(bundle: str) -> list[str]:
    """The certificates of a PEM bundle in order, in a normalized form."""
    parts = [part.partition(_END)[0] for part in bundle.split(_BEGIN)[1:]]
    return [f"{_BEGIN}\n" + "\n".join(part.split()) + f"\n{_END}\n" for part in parts]


def trusting(bundle: str, authority: str, before: str = "") -> str:
    """The bundle with `authority` and its predecessor `before`; `bundle` itself if it has both.

    Other certificates of the bundle are dropped.
    """
    wanted = certificates_in(authority) + certificates_in(before)
    if wanted and set(wanted) <= set(certificates_in(bundle)):
        return bundle
    return "".join(dict.fromkeys(wanted))
