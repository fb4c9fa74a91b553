"""All files of `deploy/`: `python -m headrace.programs.install_files FOLDER` writes them (`make install-files`)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from headrace.programs.cluster_queue.package import PACKAGE as FLUXQUEUE
from headrace.programs.operator.package import PACKAGE as OPERATOR
from headrace.programs.operator.package import kustomize_metrics_api


def all_files() -> dict[str, str]:
    """All files of `deploy/`: text by path."""
    bases = {
        "kustomize": OPERATOR.kustomize_base(),
        "kustomize/metrics-api": kustomize_metrics_api(),
        "kustomize/fluxqueue": FLUXQUEUE.kustomize_base(),
        **{f"helm/{one.name}": one.chart() for one in (OPERATOR, FLUXQUEUE)},
    }
    return {
        **{f"{one.name}.yaml": one.install_file() for one in (OPERATOR, FLUXQUEUE)},
        **{f"{folder}/{path}": text for folder, files in bases.items() for path, text in files.items()},
    }


def _write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in all_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
