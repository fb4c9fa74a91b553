"""Password checks by PAM (service `headrace`), each in a process of its own that runs this file.

PAM modules are third-party code and may block: on a server, or for some seconds after a failure. In a process of its
own, a module can neither block nor crash the service. The process has 10 seconds.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from headrace.engine.process import pam_session
from headrace.engine.process.spawn import running

SERVICE = "headrace"
SECONDS = 10.0
# The maximum number of processes at a time. Further checks wait.
_AT_A_TIME = 16
# Exit codes of the process: the password is right, or wrong. Any other code is an error.
_RIGHT, _WRONG = 0, 3


def missing() -> str:
    """The reason why logins by PAM cannot work on this machine, "" if they can."""
    return pam_session.missing(SERVICE)


class Passwords:
    """Password checks by PAM, at most _AT_A_TIME at once."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def right(self, name: str, password: str, seconds: float = SECONDS) -> bool:
        """True if PAM accepts the password, and the account is usable now."""
        async with self._turns:
            process = await asyncio.create_subprocess_exec(
                *running(__name__), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
            text = json.dumps([name, password]).encode()
            try:
                await asyncio.wait_for(process.communicate(text), seconds)
            except asyncio.TimeoutError:
                print(f"headrace api: PAM has not answered within {seconds:g} s", file=sys.stderr)
                return False
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if process.returncode not in (_RIGHT, _WRONG):
            print(f"headrace api: the PAM process exited with status {process.returncode}", file=sys.stderr)
        return process.returncode == _RIGHT


def _main() -> int:
    import pamela

    name, password = json.load(sys.stdin)
    if "\0" in name or "\0" in password:
        return _WRONG
    try:
        # check=True also checks the account, which may be locked or have expired.
        pamela.authenticate(name, password, service=SERVICE, resetcred=0, check=True)
    except (pamela.PAMError, UnicodeEncodeError):
        return _WRONG
    return _RIGHT


if __name__ == "__main__":
    sys.exit(_main())
