"""`headrace api url`: where the services of the caller are, and for each an address that opens the page once."""

from __future__ import annotations

import errno
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple


def run(options: Any) -> int:
    """Print them, those of this instance first. Raises OSError where there is none, or one is not up yet."""
    from headrace.service import running
    from headrace.wire.client.transport import DEFAULT_URI

    uri = os.environ.get("FLUX_URI") or DEFAULT_URI
    found = sorted(running.found(), key=lambda one: one.get("uri") != uri)
    wrong = None
    if not found or found[0].get("uri") != uri:
        # The instance may have started a service on another machine, and a proxy's address is not the instance's own.
        try:
            own = _of_instance()
            found = [own, *(one for one in found if _where(one) != _where(own))]
        except OSError as exc:
            wrong = exc
    for one in found:
        if options.json:
            print(json.dumps(one))
            continue
        through = f" through {one['socket']}" if "socket" in one else ""
        whose = f"    # {one['uri']}" if len(found) > 1 and "uri" in one else ""
        print(f"Open {one.get('login') or one['url']}{through}{whose}")
    if wrong is not None and not (found and wrong.errno == errno.ENOENT):
        raise wrong
    return 0


def _where(service: Dict[str, Any]) -> Tuple[Any, ...]:
    return service.get("uri"), service["url"], service.get("socket")


def _of_instance() -> Dict[str, Any]:
    """That which the instance has started by its table [headrace.api]."""
    from headrace.wire.client.handle import Handle

    try:
        with Handle() as handle:
            found: Dict[str, Any] = handle.rpc("api.url").get()
            return found
    except OSError as exc:
        if exc.errno not in (errno.ENOSYS, errno.ENOENT, errno.ECONNREFUSED, errno.EHOSTUNREACH):
            raise
        text = "no service of yours runs on this machine, and the instance has started none: headrace api start"
        raise OSError(errno.ENOENT, text) from None
