"""The install file, the kustomize base and the Helm chart of the cluster queue as texts, from the objects of `install`.

`python -m headrace.programs.cluster_queue.install_files FOLDER` writes them, and those of the operator (`make
install-files`); all else is pure.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from headrace.cluster_queue.crd import definitions
from headrace.cluster_queue.names import FLUXQUEUE
from headrace.k8s.packaging.files import kustomization, marked
from headrace.k8s.packaging.yaml_text import yaml_text
from headrace.programs.operator import install_files as operator

from .helm_chart import helm_chart
from .install import Install, access, namespace_object, objects, policies, webhook, workload

_SOURCE = "src/headrace/programs/cluster_queue/install.py"


def install_file(install: Install) -> str:
    """All objects in one text, for `kubectl apply --server-side -f`."""
    return marked("", _SOURCE, yaml_text(objects(install)))


def kustomize_base() -> dict[str, str]:
    """The files of the kustomize base: text by path."""
    install = Install()
    parts = {
        "crd.yaml": definitions(),
        "namespace.yaml": [namespace_object(install)],
        "rbac.yaml": [*policies(install), *access(install)],
        "fluxqueue.yaml": workload(install),
        "webhook.yaml": webhook(install),
    }
    return kustomization(parts, _SOURCE)


def all_files() -> dict[str, str]:
    """All files of `deploy/`: text by path."""
    return {
        **operator.all_files(),
        f"{FLUXQUEUE}.yaml": install_file(Install()),
        **{f"kustomize/fluxqueue/{path}": text for path, text in kustomize_base().items()},
        **{f"helm/{FLUXQUEUE}/{path}": marked(path, _SOURCE, text) for path, text in helm_chart().items()},
    }


def _write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in all_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
