"""Stand-ins for launchers: N processes with what `srun` gives its tasks, with and without a PMI-2 server.

Run as `launchers.py slurm|pmi2 N COMMAND...`; the exit status is task 0's.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys


def serve(socks: list[socket.socket]) -> None:
    """PMI-2 until every task has finalized."""
    store: dict[str, str] = {}
    fencing: list[socket.socket] = []
    size = len(socks)
    live = list(socks)

    def answer(sock: socket.socket, command: str, **fields: str) -> None:
        pairs = "".join(f"{key}={value.replace(';', ';;')};" for key, value in fields.items())
        body = f"cmd={command}-response;rc=0;{pairs}".encode()
        sock.sendall(b"%6d%b" % (len(body), body))

    while live:
        for sock in select.select(live, [], [])[0]:
            head = sock.recv(6, socket.MSG_WAITALL)
            if not head:
                live.remove(sock)
                continue
            text = sock.recv(int(head), socket.MSG_WAITALL).decode().replace(";;", "\0")
            pairs = (pair.partition("=")[::2] for pair in text.split(";") if pair)
            fields = {key: value.replace("\0", ";") for key, value in pairs}
            command = fields["cmd"]
            if command == "fullinit":
                answer(sock, command, size=str(size), rank=fields["pmirank"])
            elif command == "kvs-put":
                store[fields["key"]] = fields["value"]
                answer(sock, command)
            elif command == "kvs-get":
                value = store.get(fields["key"])
                answer(sock, command, found="TRUE" if value is not None else "FALSE", value=value or "")
            elif command == "info-getjobattr":
                found = fields["key"] == "PMI_process_mapping"
                mapping = f"(vector,(0,1,{size}))" if found else ""
                answer(sock, command, found="TRUE" if found else "FALSE", value=mapping)
            elif command == "kvs-fence":
                fencing.append(sock)
                if len(fencing) == size:
                    for waiting in fencing:
                        answer(waiting, command)
                    fencing.clear()
            else:
                answer(sock, command)


def main() -> int:
    kind, size, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    tasks, socks = [], []
    for rank in range(size):
        env = dict(
            os.environ,
            SLURM_PROCID=str(rank),
            SLURM_NTASKS=str(size),
            SLURM_JOB_ID="4242",
            SLURM_STEP_ID="0",
            SLURM_STEP_NUM_NODES="1" if kind == "pmi2" else "2",
            SLURM_JOB_NODELIST="vm",
        )
        keep: tuple[int, ...] = ()
        if kind == "pmi2":
            ours, its = socket.socketpair()
            socks.append(ours)
            env.update(PMI_FD=str(its.fileno()), PMI_RANK=str(rank), PMI_SIZE=str(size), PMI_JOBID="4242.0")
            keep = (its.fileno(),)
        tasks.append(subprocess.Popen(command, env=env, pass_fds=keep))
        if kind == "pmi2":
            its.close()
    serve(socks)
    statuses = [task.wait() for task in tasks]
    return statuses[0]


if __name__ == "__main__":
    sys.exit(main())
