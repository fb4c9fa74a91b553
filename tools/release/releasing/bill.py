"""The software bill of materials (CycloneDX 1.6) of wheel and images.

`cyclonedx-py` lists the Python packages. The images also contain an interpreter and libraries of this machine, which
are added with the Debian packages that they come from, and the libraries out of the wheel of Open MPI.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .commands import run
from .source import Source

_VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(f"{sys.argv[1]}: {error}" if error else 0)
"""
# What the images have besides Python packages: the interpreter, and the libraries that no wheel brought.
_NATIVE = """
import json, os, pathlib, sys, sysconfig
from headrace.images import oci, pmix_libraries, view
names = {name for path in sys.argv[1:] for name in oci.file_names(pathlib.Path(path).read_bytes())}
native = {name.rpartition("/")[2] for name in names if "/lib/native/" in name}
of_wheels = {path.name for path in pathlib.Path(sysconfig.get_path("purelib")).rglob("*.so*")}
interpreter = view.choose_interpreter("")
print(json.dumps({
    "libraries": sorted(native - of_wheels - set(pmix_libraries.NAMES)),
    "interpreter": os.path.realpath(interpreter.program),
    "version": sys.version.split()[0],
    "wheel": pmix_libraries.WHEEL,
}))
"""


def write(source: Source, work: Path, contents: Path, tools: Path, out: Path) -> None:
    """Write `headrace-VERSION.cdx.json` into `out`, about the environment `contents` and the images in `out`.

    Raises ReleaseError for a list that is not valid.
    """
    fixed = {"SOURCE_DATE_EPOCH": str(source.time)}
    listing = work / "bill.json"
    words = ("environment", "--output-reproducible", "--sv", "1.6", "--of", "JSON", "-o", listing, contents / "python")
    run(tools / "cyclonedx-py", *words, cwd=work, more=fixed)
    bill = json.loads(listing.read_text())
    (own,) = (one for one in bill["components"] if one["name"] == "headrace")
    # The wheel was installed from a file, whose path is of no use to others.
    own.pop("externalReferences", None)
    bill["components"] = [one for one in bill["components"] if one is not own] + _native(contents, out, work)
    bill.setdefault("metadata", {})["component"] = own
    target = out / f"headrace-{source.version}.cdx.json"
    target.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    run(tools / "python", "-c", _VALIDATE, target, cwd=work)


def _native(contents: Path, out: Path, work: Path) -> list[dict[str, Any]]:
    """Components for the interpreter and the libraries in the images."""
    found = json.loads(run(contents / "python", "-c", _NATIVE, *sorted(out.glob("*.oci.tar")), cwd=work))
    name, _, version = found["wheel"].partition("==")
    components = [_component(name, version, f"pkg:pypi/{name}@{version}")]
    python = _debian_package(found["interpreter"])
    components.append(_of_debian(*python) if python else _component("cpython", found["version"], "pkg:generic/cpython"))
    for library in found["libraries"]:
        # Libraries of the system lie in these folders; a package may have one of the same name in a folder of its own.
        package = _debian_package(f"/lib/*/{library}") or _debian_package(f"/usr/lib/*/{library}")
        components.append(_of_debian(*package) if package else _component(library, "", f"pkg:generic/{library}"))
    by_reference = {one["bom-ref"]: one for one in components}
    return [by_reference[reference] for reference in sorted(by_reference)]


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "name": name, "purl": purl, "bom-ref": purl, **({"version": version} if version else {})}


def _of_debian(package: str, version: str) -> dict[str, Any]:
    return _component(package, version, f"pkg:deb/debian/{package}@{quote(version)}")


def _debian_package(pattern: str) -> tuple[str, str] | None:
    """(package, version) that has a file of this machine, by a pattern of dpkg; None where no package has it."""
    if shutil.which("dpkg-query") is None:
        return None
    owners = subprocess.run(["dpkg-query", "-S", pattern], capture_output=True, text=True, check=False).stdout
    for line in sorted(owners.splitlines()):
        asking = ["dpkg-query", "-W", "-f", "${Package} ${Version}", line.partition(": ")[0].partition(",")[0]]
        words = subprocess.run(asking, capture_output=True, text=True, check=False).stdout.split()
        if len(words) == 2:
            return words[0], words[1]
    return None
