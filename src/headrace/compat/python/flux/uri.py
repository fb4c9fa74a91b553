"""`flux.uri`: addresses of instances, and finding them from jobs and processes."""

from __future__ import annotations

from typing import Any, Optional

from headrace.cli.errors import CommandError
from headrace.cli.instances import to_local, to_remote
from headrace.cli.uri import resolve


class URI:
    """An address with its parts: `scheme`, `netloc` (of ssh), `path`."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.scheme, colon, rest = uri.partition(":")
        if not colon or not rest.startswith("//"):
            raise ValueError(f"URI '{uri}' must be SCHEME://PATH")
        self.netloc, slash, path = rest[2:].partition("/")
        self.path = slash + path

    def __str__(self) -> str:
        return self.uri


class JobURI(URI):
    """The address of an instance: `remote` for ssh from anywhere, `local` for its own machine."""

    @property
    def local(self) -> str:
        return to_local(self.uri)

    @property
    def remote(self) -> str:
        return to_remote(self.uri)


class FluxURIResolver:
    """Finds instances as `flux uri` does."""

    def __init__(self, pluginpath: Optional[Any] = None) -> None:
        pass

    def resolve(self, uri: str) -> JobURI:
        """The instance of a job id, `pid:N`, `slurm:ID` or an address. Raises ValueError when there is none."""
        try:
            return JobURI(resolve(uri, connectable=False))
        except CommandError as exc:
            raise ValueError(exc.text) from None
