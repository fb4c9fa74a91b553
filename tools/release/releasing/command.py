"""The command `tools/release/release`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import build, source, trial
from .source import ReleaseError

ROOT = Path(__file__).resolve().parents[3]


def main() -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(prog="release", description="Build a release from the tag at HEAD, and try it.")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the folder of the files (default: dist)")
    parser.add_argument("--rehearse", action="store_true", help="release HEAD without a tag, to see whether it works")
    parser.add_argument("--no-trial", dest="trial", action="store_false", help="only build the files")
    options = parser.parse_args()
    try:
        _release(options)
    except ReleaseError as exc:
        print(f"release: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _release(options: argparse.Namespace) -> None:
    began = time.monotonic()

    def progress(text: str) -> None:
        print(f"{time.monotonic() - began:4.0f} s  {text}", flush=True)

    found = source.read(ROOT, options.rehearse)
    progress(f"releasing {found.version} from {found.commit[:12]}")
    with tempfile.TemporaryDirectory(prefix="headrace-release-") as folder:
        places = build.Places(Path(folder, "tree"), Path(folder, "work"), Path(folder, "out"))
        for place in (places.tree, places.work, places.out):
            place.mkdir()
        source.export(ROOT, found, places.tree)
        build.build(found, places, progress)
        untried = trial.try_all(found, places.tree, places.out, progress) if options.trial else []
        shutil.rmtree(options.into, ignore_errors=True)
        shutil.copytree(places.out, options.into)
    for path in sorted(options.into.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path}")
    for what in untried:
        print(f"not tried: {what}", file=sys.stderr)
    progress("done")
