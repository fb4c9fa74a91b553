"""`flux.uri`: addresses of instances, found by job or process."""

from __future__ import annotations

import os
import urllib.parse
from typing import Any, Optional

from headrace.wire.query.uri import resolve


class URI:
    """An address by its parts: `scheme`, `netloc` (of ssh), `path`, `query`, `fragment`, `params`."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        parts = urllib.parse.urlparse(uri)
        if not parts.scheme or not parts.path + parts.netloc:
            raise ValueError(f"URI '{uri}' must be SCHEME://PATH")
        self.scheme = parts.scheme
        self.netloc = parts.netloc
        self.path = parts.path
        self.query = parts.query
        self.fragment = parts.fragment
        self.params = parts.params

    def __str__(self) -> str:
        return self.uri


class JobURI(URI):
    """The address of an instance: `remote` for ssh from any host, `local` for the instance's own host.

    Both raise ValueError for any other scheme. `remote_hostname` is the host of a local address (default: this host).
    """

    def __init__(self, uri: str, remote_hostname: Optional[str] = None) -> None:
        super().__init__(uri)
        self._hostname = remote_hostname

    def _check(self) -> None:
        if self.scheme not in ("local", "ssh"):
            raise ValueError(f"JobURI scheme '{self.scheme}' is neither local nor ssh")

    @property
    def local(self) -> str:
        self._check()
        return f"local://{self.path}"

    @property
    def remote(self) -> str:
        self._check()
        return self.uri if self.scheme == "ssh" else f"ssh://{self._hostname or os.uname().nodename}{self.path}"


class FluxURIResolver:
    """Finds instances as `flux uri` does."""

    def __init__(self, pluginpath: Optional[Any] = None) -> None:
        pass

    def resolve(self, uri: str) -> JobURI:
        """The instance of a job id, `pid:N`, `slurm:ID` or an address. Raises ValueError if there is none."""
        return JobURI(resolve(uri, connectable=False))
