"""What cert-manager does with the objects of an install, as its API reference (cert-manager.io/v1) says: it signs each
Certificate as its Issuer says, keeps or replaces the key, and writes `ca.crt` into the webhook configuration."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Object = dict[str, Any]


_SIGNS = x509.KeyUsage(
    **{use: False for use in ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment")},
    **{use: False for use in ("key_agreement", "encipher_only", "decipher_only")},
    key_cert_sign=True,
    crl_sign=True,
)


class Issued(NamedTuple):
    """A Secret of type kubernetes.io/tls: the key, its certificate, and the certificate of who signed that."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate


class CertManager:
    def __init__(self, objects: list[Object]) -> None:
        self._made = {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self._secrets: dict[str, Issued] = {}

    def issue(self, name: str) -> None:
        """Sign a Certificate for the first time, or renew it."""
        spec = self._made["Certificate", name]["spec"]
        assert spec["privateKey"]["algorithm"] == "ECDSA" and spec["issuerRef"]["kind"] == "Issuer"
        before = self._secrets.get(spec["secretName"])
        kept = before is not None and spec["privateKey"]["rotationPolicy"] == "Never"
        key = before.key if before and kept else ec.generate_private_key(ec.SECP256R1())
        issuer = self._made["Issuer", spec["issuerRef"]["name"]]["spec"]
        by = None if "selfSigned" in issuer else self._secrets[issuer["ca"]["secretName"]]
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, spec["commonName"])] if "commonName" in spec else []
        )
        now = datetime.now(timezone.utc)
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(by.certificate.subject if by else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=int(spec.get("duration", "2160h").removesuffix("h"))))
            .add_extension(x509.BasicConstraints(ca=spec.get("isCA", False), path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if spec.get("isCA"):
            built = built.add_extension(_SIGNS, critical=True)
        if by:
            identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key())
            names = x509.SubjectAlternativeName([x509.DNSName(one) for one in spec["dnsNames"]])
            built = built.add_extension(identifier, critical=False).add_extension(names, critical=True)
        certificate = built.sign(by.key if by else key, hashes.SHA256())
        self._secrets[spec["secretName"]] = Issued(key, certificate, by.certificate if by else certificate)

    def bundle(self, configuration: str) -> str:
        """The caBundle that the annotation of a webhook configuration asks for, in PEM."""
        (found,) = (one for (_, name), one in self._made.items() if name == configuration)
        annotations = found["metadata"]["annotations"]
        _, name = annotations["cert-manager.io/inject-ca-from"].split("/")
        return _pem(self._secrets[self._made["Certificate", name]["spec"]["secretName"]].authority)

    def mount(self, secret: str, folder: Path) -> None:
        """Show a Secret in a folder as the kubelet does: all files at once, by one link that is replaced."""
        issued = self._secrets[secret]
        behind = folder / f"..{issued.certificate.serial_number}"
        behind.mkdir(exist_ok=True)
        text = issued.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        files = {"tls.crt": _pem(issued.certificate), "tls.key": text.decode(), "ca.crt": _pem(issued.authority)}
        for name, content in files.items():
            (behind / name).write_text(content)
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(f"..data/{name}")
        (folder / "..new").symlink_to(behind.name)
        os.replace(folder / "..new", folder / "..data")


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
