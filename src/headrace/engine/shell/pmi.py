"""The PMI-1 server of one job's tasks on one node (RFC 13): text lines in, text lines out. No I/O.

Pairs that tasks put are collected locally and exchanged in a barrier. Once all local tasks have entered it, the node's
pairs are sent in one message. When the barrier completes, the node gets the pairs of all nodes. Gets are answered from
memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

# Sizes of the buffers of C clients, in bytes, including the NUL at the end.
KVSNAME_MAX = 64
KEY_MAX = 64
VALUE_MAX = 1024
# Constant responses, by command.
_ANSWERS = {
    "get_maxes": f"cmd=maxes rc=0 kvsname_max={KVSNAME_MAX} keylen_max={KEY_MAX} vallen_max={VALUE_MAX}",
    "get_appnum": "cmd=appnum rc=0 appnum=0",
    "finalize": "cmd=finalize_ack rc=0",
    "publish_name": "cmd=publish_result rc=-1 info=not_supported",
    "unpublish_name": "cmd=unpublish_result rc=-1 info=not_supported",
    "lookup_name": "cmd=lookup_result rc=-1 info=not_supported",
    "spawn": "cmd=spawn_result rc=-1 info=not_supported",
}


class PmiServer:
    """The server of `ntasks` local tasks of a job with `size` tasks. `preset` are the initial pairs.

    `enter(kvs)` is called when all local tasks have entered a barrier. When the barrier has completed on all nodes,
    the caller calls `complete(kvs)`. `abort(local, code, message)` is called for a task that aborts, and
    `blocked(reason)` if a task waits in a barrier that can no longer complete.
    """

    def __init__(
        self,
        kvsname: str,
        size: int,
        ntasks: int,
        preset: Mapping[str, str],
        enter: Callable[[dict[str, str]], None],
        abort: Callable[[int, int, str], None],
        blocked: Callable[[str], None],
    ) -> None:
        self.kvsname = kvsname
        self.size = size
        self.ntasks = ntasks
        self._enter = enter
        self._abort = abort
        self._on_blocked = blocked
        # Why barriers can no longer complete; "" as long as they can.
        self._block_reason = ""
        # By local task: True after its `init`, False after its `finalize`.
        self._initialized: dict[int, bool] = {}
        self._kvs: dict[str, str] = dict(preset)
        self._new: dict[str, str] = {}
        self._waiting: list[Callable[[bytes], None]] = []

    def complete(self, kvs: Mapping[str, str]) -> None:
        """Complete the barrier. `kvs` has the new pairs of all nodes."""
        self._kvs.update(kvs)
        waiting, self._waiting = self._waiting, []
        for reply in waiting:
            reply(b"cmd=barrier_out rc=0\n")

    def is_awaited(self, local: int, by_default: bool) -> bool:
        """True if other tasks may wait in a barrier for the ended task `local`.

        This is the case if the task has sent `init` but not `finalize`. If it has sent neither, the result is
        `by_default`.
        """
        return self._initialized.get(local, by_default)

    def block(self, reason: str) -> None:
        """Mark barriers as unable to complete, for this reason."""
        self._block_reason = reason
        if self._waiting:
            self._on_blocked(reason)

    def line(self, text: str, local: int, reply: Callable[[bytes], None]) -> None:
        """Handle one request line of task `local`. `reply` is called at once, or when the barrier completes.

        In `text`, bytes that are not UTF-8 are surrogates, as with os.fsdecode.
        """
        fields = _fields(text)
        # Clients write some commands with hyphens.
        command = fields.get("cmd", "").replace("-", "_")
        if command in ("init", "finalize"):
            self._initialized[local] = command == "init"
        if command == "barrier_in":
            self._enter_barrier(reply)
        elif command == "abort":
            code = fields.get("exitcode", "")
            number = int(code) if re.fullmatch(r"-?[0-9]{1,10}", code) else 1
            self._abort(local, number, fields.get("error_msg", "").encode("utf-8", "replace").decode())
        else:
            reply((self._answer(command, fields) + "\n").encode("utf-8", "replace"))

    def _enter_barrier(self, reply: Callable[[bytes], None]) -> None:
        self._waiting.append(reply)
        if self._block_reason:
            self._on_blocked(self._block_reason)
        if len(self._waiting) == self.ntasks:
            new, self._new = self._new, {}
            self._enter(new)

    def _answer(self, command: str, fields: Mapping[str, str]) -> str:
        match command:
            case "init":
                rc = 0 if fields.get("pmi_version") == "1" else -1
                return f"cmd=response_to_init rc={rc} pmi_version=1 pmi_subversion=1"
            case "get_my_kvsname":
                return f"cmd=my_kvsname rc=0 kvsname={self.kvsname}"
            case "get_universe_size":
                return f"cmd=universe_size rc=0 size={self.size}"
            case "put":
                return self._put(fields.get("key", ""), fields.get("value", ""))
            case "get":
                value = self._kvs.get(fields.get("key", ""))
                if value is None:
                    return "cmd=get_result rc=-1 msg=key_not_found value="
                return f"cmd=get_result rc=0 msg=success value={value}"
            case _:
                return _ANSWERS.get(command, f"cmd={fields.get('cmd') or 'unknown'} rc=-1 msg=unknown_command")

    def _put(self, key: str, value: str) -> str:
        try:
            fits = 0 < len(key.encode()) < KEY_MAX and len(value.encode()) < VALUE_MAX
        except UnicodeEncodeError:
            return "cmd=put_result rc=-1 msg=key_or_value_not_utf8"
        if not fits:
            return "cmd=put_result rc=-1 msg=key_or_value_too_long"
        self._kvs[key] = self._new[key] = value
        return "cmd=put_result rc=0 msg=success"


def _fields(text: str) -> dict[str, str]:
    """Parse `key=value` words. `value=` includes the rest of the line, which may have spaces and "="."""
    head, marker, rest = text.partition(" value=")
    fields = {}
    for word in head.split():
        key, _, value = word.partition("=")
        fields[key] = value
    if marker:
        fields["value"] = rest
    return fields
