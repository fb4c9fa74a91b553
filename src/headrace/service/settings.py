"""Settings of the service: from options, and from the environment variables of flux-restful-api."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.formats.spec.jobspec_build import parse_setting

_SWITCHES = {"true": True, "1": True, "false": False, "0": False}


class SettingsError(ValueError):
    """A setting has an invalid value. The text is for users."""


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
# Headers that browsers, clients and proxies set for their own purposes (RFC 9110, RFC 6265, RFC 7239, Fetch), and
# headers that this service uses.
_TAKEN = frozenset(
    (
        *("accept", "authorization", "cache-control", "connection", "cookie", "date", "dnt", "expect", "forwarded"),
        *("from", "host", "hx-request", "idempotency-key", "keep-alive", "last-event-id", "max-forwards", "origin"),
        *("pragma", "priority", "range", "referer", "te", "trailer", "transfer-encoding", "upgrade"),
        *("upgrade-insecure-requests", "user-agent", "via", "x-forwarded-for", "x-forwarded-host"),
        *("x-forwarded-port", "x-forwarded-proto", "x-forwarded-server", "x-forwarded-prefix"),
        *("x-forwarded-scheme", "x-real-ip", "x-request-id", "x-requested-with"),
    )
)
_TAKEN_FAMILIES = ("accept-", "access-control-", "content-", "if-", "proxy-", "sec-")
# With a FLUX_SECRET_KEY shorter than this, in bytes, signatures can be guessed (RFC 7518 section 3.2 asks for 32).
SHORT_KEY = 14


@dataclass(frozen=True)
class Settings:
    """Settings of a service. The defaults are those of flux-restful-api.

    `auth` is one of:

    - `token`: the owner of the service is the only user, and needs a token.
    - `none`: the owner is the only user, without a token.
    - `users`: the users in `database`, by passwords.
    - `proxy`: the users in `database`, logged in by a proxy that names them in a header.
    - `pam`: the users of this machine, by PAM.

    `hosts` are the host names that the service accepts, empty for any.
    """

    uri: str = ""
    auth: str = "token"
    # The file of the store of users.
    database: str = ""
    # With `proxy`: the header, and whether users that are not in the database are added to it.
    proxy_header: str = ""
    adds_unknown: bool = False
    # The file of the audit, "" for none.
    audit: str = ""
    hosts: frozenset[str] = frozenset()
    # True if requests come through a proxy, so that their address is the proxy's.
    behind_proxy: bool = False
    # The folder whose experiments are shown, "" for none.
    experiments: str = ""
    # For the header that clients of flux-restful-api sign to get a token.
    user: str = "fluxuser"
    password: str = ""
    secret_key: str = ""
    token_minutes: int = 600
    # None: the instance decides by the nodes and GPUs that it has.
    nodes: int | None = None
    gpus: bool | None = None
    shell_options: Mapping[str, Any] = field(default_factory=dict)
    # The default working directory of jobs; "": the instance decides, by the home of the job's user.
    directory: str = field(default_factory=os.getcwd)

    @property
    def several(self) -> bool:
        """True if there may be users other than the owner."""
        return self.auth in ("users", "proxy", "pam")


def from_environment(environment: Mapping[str, str], uri: str, auth: str, hosts: frozenset[str]) -> Settings:
    """Settings from the environment, for everything that options do not set. Raises SettingsError."""
    mode = environment.get("FLUX_SERVER_MODE") or "single-user"
    if mode not in ("single-user", "multi-user"):
        raise SettingsError(f"FLUX_SERVER_MODE is '{mode}', it must be single-user or multi-user")
    if mode == "multi-user":
        if auth in ("token", "none"):
            raise SettingsError(f"FLUX_SERVER_MODE is 'multi-user', which --auth {auth} is not")
        auth = auth or "users"
    if not auth:
        # The default is a token, because every user of this machine can reach a loopback address.
        auth = "none" if _switch(environment, "FLUX_REQUIRE_AUTH") is False else "token"
    return Settings(
        uri=uri,
        auth=auth,
        hosts=hosts,
        user=environment.get("FLUX_USER") or Settings.user,
        password=environment.get("FLUX_TOKEN", ""),
        secret_key=environment.get("FLUX_SECRET_KEY", ""),
        token_minutes=number(environment, "FLUX_ACCESS_TOKEN_EXPIRES_MINUTES") or Settings.token_minutes,
        nodes=number(environment, "FLUX_NUMBER_NODES"),
        gpus=_switch(environment, "FLUX_HAS_GPUS"),
        shell_options=_shell_options(environment.get("FLUX_OPTION_FLAGS", "")),
    )


def number(environment: Mapping[str, str], name: str) -> int | None:
    """A positive number from the environment, None if it is not set. Raises SettingsError."""
    text = environment.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) < 1 << 31):
        raise SettingsError(f"{name} is '{text}', it must be a number from 1 on")
    return int(text)


def proxy_header(name: str) -> str:
    """Check the name of the header in which a proxy names users. Raises SettingsError.

    It must be a token (RFC 9110 section 5.6.2), and no header that browsers or proxies use for other purposes.
    """
    if not _TOKEN.fullmatch(name):
        raise SettingsError(f"--proxy-header is '{name}', it must be the name of a header, such as X-Remote-User")
    if name.lower() in _TAKEN or name.lower().startswith(_TAKEN_FAMILIES):
        raise SettingsError(
            f"--proxy-header is '{name}', which browsers and proxies send themselves: name another, as X-Remote-User"
        )
    return name


def port(environment: Mapping[str, str]) -> int | None:
    """The port number in PORT, None if it is not set. Raises SettingsError."""
    found = number(environment, "PORT")
    if found is not None and found >= 1 << 16:
        raise SettingsError(f"PORT is '{found}', it must be a number from 1 to 65535")
    return found


def _switch(environment: Mapping[str, str], name: str) -> bool | None:
    text = environment.get(name)
    if not text:
        return None
    if text.lower() not in _SWITCHES:
        raise SettingsError(f"{name} is '{text}', it must be true, false, 1 or 0")
    return _SWITCHES[text.lower()]


def _shell_options(text: str) -> dict[str, Any]:
    """Parse `-oNAME=VALUE ...`, in which -o is optional."""
    options = {}
    try:
        for word in shlex.split(text):
            if "=" not in word:
                raise ValueError(f"'{word}' is not NAME=VALUE")
            name, value = parse_setting(word[2:] if word.startswith("-o") else word)
            options[name] = value
    except ValueError as exc:
        raise SettingsError(f"FLUX_OPTION_FLAGS: {exc}") from None
    return options
