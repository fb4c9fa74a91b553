"""The aggregation layer of the tests' API servers shows who it is by a client certificate, as that of kubeadm does."""

from __future__ import annotations

from pathlib import Path

from client_certificates import Authority

NAME = "front-proxy-client"


def options(folder: Path) -> list[str]:
    """Options of an API server, whose files are in `folder`."""
    authority = Authority("front-proxy-ca")
    bundle = folder / "front-proxy-ca.crt"
    bundle.write_text(authority.pem)
    certificate, key = authority.client(folder, NAME)
    return [
        f"--requestheader-client-ca-file={bundle}",
        f"--requestheader-allowed-names={NAME}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
    ]
