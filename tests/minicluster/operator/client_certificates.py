"""Client certificates, and authorities that sign them, such as those of the API server's aggregation layer."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """An authority, which signs itself or is signed by another one; `pem` is its certificate."""

    def __init__(self, name: str, signer: Authority | None = None) -> None:
        self.name = _named(name)
        self.key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = _built(self.name, self.key, signer or self).add_extension(constraints, critical=True)
        self.pem = _pem(made.sign((signer or self).key, hashes.SHA256()))

    def client(
        self, folder: Path, name: str, *, lasts: timedelta = timedelta(days=1), serves: bool = False
    ) -> tuple[Path, Path]:
        """The files of a certificate for clients with this common name, or for servers, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH
        made = _built(_named(name), key, self, lasts).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        files = folder / f"{made._serial_number}.crt", folder / f"{made._serial_number}.key"
        files[0].write_text(_pem(made.sign(self.key, hashes.SHA256())))
        files[1].write_bytes(secret)
        return files


def presenting(server_authority: str, files: tuple[Path, Path] | None) -> ssl.SSLContext:
    """TLS of a client that trusts servers of an authority (PEM), and presents a certificate or none."""
    context = ssl.create_default_context(cadata=server_authority)
    if files:
        context.load_cert_chain(*files)
    return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])


def _built(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, signer: Authority, lasts: timedelta = timedelta(days=1)
) -> x509.CertificateBuilder:
    # A certificate that has ended began two days before.
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + lasts)
        # By these two the signer is found among authorities of one name.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
