"""The state that all routes share: settings, the broker, access, and running workflow tools.

A route calls `of(request)` to get the service together with the user of the request.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.service import audit
from headrace.service.broker_link import Broker, BrokerLink
from headrace.service.experiments import Experiments
from headrace.service.followers import Followers
from headrace.service.journal import Journal
from headrace.service.middleware import SAFE_METHODS
from headrace.service.people import People
from headrace.service.settings import Settings
from headrace.service.store import StoreUnusable
from headrace.service.streams import Slots, Stream
from headrace.service.users import csrf
from headrace.service.users.access import Access, Unauthenticated
from headrace.service.users.credential import Identity
from headrace.service.users.userids import UseridMismatch

# Seconds that a workflow tool has to end after SIGTERM when the service stops; then SIGKILL.
_LAUNCHER_GRACE = 10.0


@dataclass
class Service:
    settings: Settings
    broker: Broker
    access: Access
    launchers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    slots: Slots = field(default_factory=Slots)
    followers: Followers = field(default_factory=Followers)
    journal: Journal | None = None
    experiments: Experiments = field(init=False)

    def __post_init__(self) -> None:
        self.experiments = Experiments(self.settings.experiments)

    def news(self, own_link: BrokerLink) -> Journal:
        """The journal of the events of all jobs. All followers share it."""
        if self.journal is None or self.journal.lost or not self.journal.of_this_loop():
            self.journal = Journal(own_link)
        return self.journal

    def launch(self, command: list[str], environment: dict[str, str], directory: str) -> None:
        """Start a workflow tool, which submits jobs to the same broker. Raises OSError."""
        self.launchers = [one for one in self.launchers if one.poll() is None]
        environment = {**environment, "FLUX_URI": self.broker.uri}
        quiet = subprocess.DEVNULL
        self.launchers.append(
            subprocess.Popen(
                command, env=environment, cwd=directory, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
            )
        )

    def close(self) -> None:
        """Stop workflow tools with all processes of their sessions, and close the connections to the broker."""
        for tool in self.launchers:
            if tool.poll() is None:
                _signal(tool, signal.SIGTERM)
        for tool in self.launchers:
            try:
                tool.wait(_LAUNCHER_GRACE)
            except subprocess.TimeoutExpired:
                _signal(tool, signal.SIGKILL)
                tool.wait()
        self.broker.close()


class Here(NamedTuple):
    """The service for one request. Routes reach the broker only by `link`, as the user of the request."""

    service: Service
    request: Request

    @property
    def identity(self) -> Identity:
        """The user of the request. Raises AttributeError if the router has none of the dependencies below."""
        found: Identity = self.request.state.identity
        return found

    async def has_access(self) -> bool:
        """True if the request would still be accepted now, as the same user with the same role."""
        try:
            return bool(await self.request.state.whose(self.request) == self.identity)
        except (Unauthenticated, UseridMismatch, StoreUnusable):
            return False

    @property
    def link(self) -> BrokerLink:
        return self.service.broker.link(self.identity)

    @property
    def own_link(self) -> BrokerLink:
        """The link for the few requests that the service makes as the owner (broker_link.OWN_TOPICS)."""
        return self.service.broker.link(None)

    @property
    def uri(self) -> str:
        return self.service.broker.uri

    @property
    def settings(self) -> Settings:
        return self.service.settings

    @property
    def access(self) -> Access:
        return self.service.access

    @property
    def people(self) -> People:
        return People(self.access, self.identity, self.settings.audit)

    @property
    def experiments(self) -> Experiments:
        return self.service.experiments

    def stream(self, pieces: AsyncIterator[bytes], media_type: str, headers: dict[str, str] | None = None) -> Stream:
        """A response that sends its pieces as they become available. Raises TooManyStreams."""
        return Stream(self.service.slots, self.identity.userid, self.has_access, pieces, media_type, headers)

    def launch(self, command: list[str], environment: dict[str, str], directory: str) -> None:
        """Start a workflow tool whose jobs belong to this user. See Service.launch."""
        self.service.launch(command, {**environment, **self.identity.environment()}, directory)


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def of(request: Request) -> Here:
    return Here(request.app.state.service, request)


async def let_in(request: Request, whose: Callable[[Request], Awaitable[Identity]]) -> None:
    """Set the user of the request to the result of `whose`. Raises Unauthenticated."""
    request.state.identity = await whose(request)
    request.state.whose = whose


async def by_header(request: Request) -> None:
    """Router dependency: set the user by the header's token, and write a change's first line to the audit.

    Raises Unauthenticated, NotAudited, TooManyFailures.
    """
    await let_in(request, of(request).access.of_header)
    if request.method not in SAFE_METHODS:
        await audit.before_change(request)


async def by_cookie(request: Request) -> None:
    """Router dependency: as `by_header`, but by the cookie of the page.

    Raises csrf.Forged for a change without the CSRF token of the session.
    """
    await let_in(request, of(request).access.of_cookie)
    if request.method not in SAFE_METHODS:
        await csrf.check_request(request)
        await audit.before_change(request)


async def by_either(request: Request) -> None:
    """Router dependency: `by_header` for a request with a header `Authorization`, else `by_cookie`."""
    if "authorization" in request.headers or not of(request).access.needed:
        await by_header(request)
    else:
        await by_cookie(request)


def _signal(tool: subprocess.Popen[bytes], signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(tool.pid, signum)
