"""The two images that a node cannot do without, as OCI archives in the cache: `local/pause:1`, `local/busybox:1`.

There is no registry: images come into a node as archives, and pods name them with a tag other than `latest`, so that
nothing is pulled.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import places
from .errors import KubeError

# Process 1 of every pod: holds the namespaces, and reaps orphans where containers share a process namespace.
_PAUSE = r"""
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) { _exit(number == SIGTERM || number == SIGINT ? 0 : 1); }
static void reap(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) {} }

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
"""
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def _blob(folder: Path, data: bytes, kind: str) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    (folder / digest).write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def archive(root: Path, target: Path, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Write the file tree `root` as an image of one layer, with everything owned by root and dated 1970."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, str(path.relative_to(root)), recursive=False, filter=plain)
    oci = "application/vnd.oci.image"
    with tempfile.TemporaryDirectory() as text:
        blobs = Path(text) / "blobs/sha256"
        blobs.mkdir(parents=True)
        content = _blob(blobs, layer.getvalue(), f"{oci}.layer.v1.tar")
        config = {
            "architecture": _MACHINES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Cmd": list(command), "Env": [f"{key}={value}" for key, value in environment.items()]},
            "rootfs": {"type": "layers", "diff_ids": [content["digest"]]},
        }
        described = _blob(blobs, json.dumps(config).encode(), f"{oci}.config.v1+json")
        manifest = {"schemaVersion": 2, "config": described, "layers": [content]}
        entry = _blob(blobs, json.dumps(manifest).encode(), f"{oci}.manifest.v1+json")
        entry["annotations"] = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
        (Path(text) / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        (Path(text) / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        whole = target.with_suffix(".new")
        with tarfile.open(whole, "w") as tar:
            for part in ("oci-layout", "index.json", "blobs"):
                tar.add(Path(text) / part, part)
        whole.rename(target)


def names(path: Path) -> list[str]:
    """The full names (`docker.io/local/NAME:1`) under which an archive's images are looked for by the kubelet."""
    with tarfile.open(path) as tar:
        try:
            index = json.load(tar.extractfile("index.json") or io.BytesIO())
        except (KeyError, ValueError) as exc:
            raise KubeError(f"{path}: no OCI archive: {exc}") from exc
    found = []
    for entry in index.get("manifests", []):
        noted = entry.get("annotations", {})
        name = noted.get("io.containerd.image.name") or noted.get("org.opencontainers.image.ref.name", "")
        if ":" not in name:
            raise KubeError(f"{path}: its image is called {name!r}: NAME:TAG is needed")
        first = name.split("/")[0]
        if "/" not in name or not ("." in first or ":" in first or first == "localhost"):
            name = "docker.io/" + ("" if "/" in name else "library/") + name
        found.append(name)
    return found


def pause() -> Path:
    """The archive of `local/pause:1`."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    made = places.cache() / f"pause-{hashlib.sha256(_PAUSE.encode()).hexdigest()[:12]}.tar"
    if not made.exists():
        if compiler is None:
            raise KubeError("no C compiler for the pause image: `make packages` installs gcc")
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as root:
            done = subprocess.run(
                [compiler, "-Os", "-static", "-s", "-x", "c", "-", "-o", f"{root}/pause"],
                input=_PAUSE,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise KubeError(f"the pause program does not compile: {done.stderr[-1000:]}")
            archive(Path(root), made, "docker.io/local/pause:1", ["/pause"], {})
    return made


def busybox() -> Path:
    """The archive of `local/busybox:1`: a shell and its commands, statically linked, and nothing else."""
    binary = Path("/bin/busybox")
    if not binary.exists():
        raise KubeError("no /bin/busybox for the test image: `make packages` installs busybox-static")
    made = places.cache() / f"busybox-{hashlib.sha256(binary.read_bytes()).hexdigest()[:12]}.tar"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as text:
            root = Path(text)
            for folder in ("bin", "etc", "tmp", "root"):
                (root / folder).mkdir()
            (root / "tmp").chmod(0o1777)
            shutil.copy(binary, root / "bin/busybox")
            (root / "bin/busybox").chmod(0o755)
            listed = subprocess.run([str(binary), "--list"], check=True, capture_output=True, text=True).stdout
            for command in listed.split():
                if command != "busybox":
                    (root / "bin" / command).symlink_to("busybox")
            (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
            (root / "etc/group").write_text("root:x:0:\n")
            archive(root, made, "docker.io/local/busybox:1", ["sh"], {"PATH": "/bin"})
    return made
