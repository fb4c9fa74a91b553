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

from .commands import run
from .source import Source

_VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(f"{sys.argv[1]}: {error}" if error else 0)
"""
# The files of images that are not Python's, and the wheel that some are from.
_NATIVE = """
import json, pathlib, sys
from headrace.images import oci, pmix_libraries
found = set()
for path in sys.argv[1:]:
    for name in oci.file_names(pathlib.Path(path).read_bytes()):
        if "/lib/native/" in name or name.endswith("libexec/python3"):
            found.add(name.rpartition("/")[2])
print(json.dumps([sorted(found), pmix_libraries.NAMES, pmix_libraries.WHEEL]))
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
    images = sorted(out.glob("*.oci.tar"))
    files, of_wheel, wheel = json.loads(run(contents / "python", "-c", _NATIVE, *images, cwd=work))
    name, _, version = wheel.partition("==")
    found = {f"pkg:pypi/{name}@{version}": _component(name, version, f"pkg:pypi/{name}@{version}")}
    for file in files:
        if file in of_wheel:
            continue
        package, version = _debian_package(file)
        purl = f"pkg:deb/debian/{package}@{version}" if version else f"pkg:generic/{package}"
        found[purl] = _component(package, version, purl)
    return [found[purl] for purl in sorted(found)]


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "name": name, "purl": purl, "bom-ref": purl, **({"version": version} if version else {})}


def _debian_package(file: str) -> tuple[str, str]:
    """(package, version) that a library of this machine comes from; (`file`, "") where no package has it."""
    if shutil.which("dpkg-query"):
        said = subprocess.run(["dpkg-query", "-S", f"*/{file}"], capture_output=True, text=True, check=False).stdout
        for line in sorted(said.splitlines()):
            package = line.partition(": ")[0].partition(",")[0]
            asking = ["dpkg-query", "-W", "-f", "${Package} ${Version}", package]
            words = subprocess.run(asking, capture_output=True, text=True, check=False).stdout.split()
            if len(words) == 2:
                return words[0], words[1]
    return file, ""
