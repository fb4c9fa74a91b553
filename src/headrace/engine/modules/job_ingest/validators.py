"""A site's own validators: files with a class `Validator` that checks each submitted job.

They run in a separate process (validator_worker.py), which is started for the first job. If it exits, or is killed
because it does not respond, it is started again for the next job. A thread waits for its responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import subprocess
import threading
import time
from typing import Any

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.modules.background import Background
from headrace.engine.process.spawn import calling
from headrace.wire.client.installation import FOLDERS

# Seconds in which the process must respond to one job.
ANSWER_WITHIN = 30.0
_MAIN = "from headrace.engine.modules.job_ingest.validator_worker import main; main(sys.argv[1:])"
_LONGEST_ANSWER = 1 << 20


class Validators:
    """The validator process. It checks one job at a time, and is restarted if files or options change."""

    def __init__(self, ctx: ModuleContext) -> None:
        self._ctx = ctx
        self._thread = Background(ctx.loop.call_soon_threadsafe, "job-validator")
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._command: list[str] = []
        self._closed = threading.Event()

    async def check(self, files: tuple[str, ...], options: tuple[str, ...], job: dict[str, Any]) -> None:
        """Check a job's jobspec, userid, flags and urgency. Raises RpcError if the job is refused."""
        command = [str(len(files)), *files, *options]
        line = json.dumps({key: job[key] for key in ("jobspec", "userid", "flags", "urgency")}).encode() + b"\n"
        answer: asyncio.Future[bytes] = self._ctx.loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        self._thread.submit(lambda: self._ask(command, line), done)
        reply = await answer
        try:
            result = json.loads(reply)
            errnum, text = result["errnum"], result.get("errstr", "")
            refused = type(errnum) is not int or errnum
        except (ValueError, TypeError, KeyError):
            raise RpcError(errno.EPROTO, f"the job validator sent an invalid response: {reply[:200]!r}") from None
        if refused:
            raise RpcError(errnum if type(errnum) is int and 0 < errnum < 4096 else errno.EINVAL, str(text))

    # In the thread

    def _ask(self, command: list[str], line: bytes) -> bytes:
        if self._channel is None or command != self._command:
            self._end()
            self._start(command)
        channel = self._channel
        assert channel is not None
        until = time.monotonic() + ANSWER_WITHIN
        answer = b""
        try:
            channel.settimeout(ANSWER_WITHIN)
            channel.sendall(line)
            while not answer.endswith(b"\n"):
                channel.settimeout(max(until - time.monotonic(), 0.001))
                piece = channel.recv(1 << 16)
                if not piece or len(answer) > _LONGEST_ANSWER:
                    raise ConnectionResetError
                answer += piece
        except TimeoutError:
            self._end()
            text = f"the job validator gave no answer in {ANSWER_WITHIN:g} s and was killed"
            raise RpcError(errno.ETIMEDOUT, text) from None
        except OSError:
            self._end()
            raise RpcError(errno.EPROTO, "Unrecoverable error: worker unexpectedly exited") from None
        return answer

    def _start(self, command: list[str]) -> None:
        if self._closed.is_set():
            raise RpcError(errno.ENOSYS, f"{self._ctx.name} was unloaded")
        ours, its = socket.socketpair()
        uri = self._ctx.attrs.get("local-uri", "")
        try:
            self._process = subprocess.Popen(
                calling(_MAIN, *command, first=FOLDERS["python_path"]),
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, **({"FLUX_URI": uri} if uri else {})},
            )
        except OSError as exc:
            ours.close()
            raise RpcError(exc.errno or errno.EIO, f"the job validator cannot be started: {exc}") from None
        finally:
            its.close()
        self._channel, self._command = ours, command
        if self._closed.is_set():
            # close() may have been called before the process was started.
            self._process.kill()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._channel is not None:
            self._channel.close()
        self._process = self._channel = None

    # In the loop

    async def close(self) -> None:
        """End the process. Jobs that wait for it are refused."""
        self._closed.set()
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await self._thread.close()
        self._end()
