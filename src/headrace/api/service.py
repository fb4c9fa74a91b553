"""What the routes share: settings, the broker, tokens, and workflow tools that were started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, field

from starlette.requests import Request

from headrace.api.broker_link import BrokerLink
from headrace.api.identity.access import Access
from headrace.api.settings import Settings

# Seconds that a workflow tool has to end in order when the service ends.
_LAUNCHER_GRACE = 10.0


@dataclass
class Service:
    settings: Settings
    link: BrokerLink
    access: Access
    launchers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def launch(self, command: list[str], environment: dict[str, str], directory: str) -> None:
        """Start a workflow tool, which submits jobs to the same broker. Raises OSError."""
        self.launchers = [one for one in self.launchers if one.poll() is None]
        environment = {**environment, "FLUX_URI": self.link.uri}
        quiet = subprocess.DEVNULL
        self.launchers.append(
            subprocess.Popen(
                command, env=environment, cwd=directory, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
            )
        )

    def close(self) -> None:
        """End workflow tools with what they started, and the connection to the broker."""
        for tool in self.launchers:
            if tool.poll() is None:
                _signal(tool, signal.SIGTERM)
        for tool in self.launchers:
            try:
                tool.wait(_LAUNCHER_GRACE)
            except subprocess.TimeoutExpired:
                _signal(tool, signal.SIGKILL)
                tool.wait()
        self.link.close()


def of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _signal(tool: subprocess.Popen[bytes], signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(tool.pid, signum)
