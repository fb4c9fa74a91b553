"""`headrace api url`: where the service is that the instance has started, and an address that opens the page once."""

from __future__ import annotations

import errno
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(options: Any) -> int:
    """Print it. Raises OSError where there is no such service, or it is not up."""
    from headrace.client.handle import Handle

    with Handle() as handle:
        try:
            found = handle.rpc("api.url").get()
        except OSError as exc:
            if exc.errno != errno.ENOSYS:
                raise
            text = "this instance has started no service: its configuration has no table [headrace.api]"
            raise OSError(errno.ENOSYS, text) from None
    if options.json:
        print(json.dumps(found))
    else:
        through = f" through {found['socket']}" if "socket" in found else ""
        print(f"Open {found.get('login') or found['url']}{through}")
    return 0
