"""Makes this process's mount and host name namespaces look like a container's, then becomes a program.

`inside.py ROOT HOST NAME=SOURCE... -- PROGRAM...`: ROOT is an empty folder; everything of the machine is in it
but for /tmp, /dev, /proc and what NAME=SOURCE puts there. Run by `unshare`, as root. Variables of the environment whose
names begin with POD_ make poorer containers: POD_WITHOUT are folders that are empty (by colons), POD_UID is a user
without a name, who may write nowhere.
"""

from __future__ import annotations

import os
import subprocess
import sys

_OWN = ("tmp", "dev", "proc", "mnt", "home", "run")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def main(argv: list[str]) -> None:
    split = argv.index("--")
    root, host, *mounts = argv[:split]
    program = argv[split + 1 :]
    _mount("--make-rprivate", "/")
    _mount("-t", "tmpfs", "tmpfs", root)
    for name in os.listdir("/"):
        path, there = f"/{name}", f"{root}/{name}"
        if os.path.islink(path):
            os.symlink(os.readlink(path), there)
        elif name not in _OWN and os.path.isdir(path):
            os.mkdir(there)
            _mount("--rbind", path, there)
    for name in _OWN:
        os.makedirs(f"{root}/{name}", exist_ok=True)
    os.chmod(f"{root}/tmp", 0o1777)
    _mount("-t", "proc", "proc", f"{root}/proc")
    for name in _DEVICES:
        open(f"{root}/dev/{name}", "w").close()
        _mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
    os.mkdir(f"{root}/dev/shm", 0o1777)
    open(f"{root}/dev/termination-log", "w").close()
    for path in filter(None, os.environ.pop("POD_WITHOUT", "").split(":")):
        _mount("-t", "tmpfs", "tmpfs", f"{root}{path}")
    for one in mounts:
        name, _, source = one.partition("=")
        there = f"{root}{name}"
        if os.path.isdir(source):
            os.makedirs(there, exist_ok=True)
        elif not os.path.exists(there):
            os.makedirs(os.path.dirname(there), exist_ok=True)
            open(there, "w").close()
        _mount("--bind", source, there)
    uid = int(os.environ.pop("POD_UID", "0"))
    if uid:
        _mount("-o", "remount,ro", root)
    subprocess.run(["hostname", host], check=True)
    os.chroot(root)
    os.chdir("/" if uid else "/tmp")
    if uid:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    os.execvpe(program[0], program, dict(os.environ))


if __name__ == "__main__":
    main(sys.argv[1:])
