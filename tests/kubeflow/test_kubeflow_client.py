"""The client chooses its back end by the configuration: Headrace's, or as the SDK does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from instance import clean_env
from kubeflow.trainer import LocalProcessBackendConfig
from kubeflow.trainer import TrainerClient as SDKClient
from kubeflow.trainer.backends.localprocess.backend import LocalProcessBackend

from headrace.kubeflow import HeadraceBackendConfig, TrainerClient
from headrace.kubeflow.backend import HeadraceBackend

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u, namespace: there}}]
current-context: x
"""


def backend_of(folder: Path, config: str = "", kubeconfig: str | None = None) -> str:
    """The back end of a client in a process whose user has this kubeconfig, or what it fails by."""
    if kubeconfig is not None:
        (folder / "config").write_text(kubeconfig)
    text = f"""
from unittest.mock import patch
from kubeflow.trainer import KubernetesBackendConfig, LocalProcessBackendConfig
from kubeflow.trainer.backends.kubernetes.backend import KubernetesBackend
from headrace.kubeflow import HeadraceBackendConfig, TrainerClient
with patch.object(KubernetesBackend, "verify_backend"):
    try:
        print(type(TrainerClient({config}).backend).__name__)
    except Exception as exc:
        print(type(exc).__name__)
"""
    env = clean_env(KUBECONFIG=str(folder / "config"))
    return subprocess.run(
        [sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def test_each_configuration_has_its_back_end(tmp_path: Path) -> None:
    client = TrainerClient(HeadraceBackendConfig())
    assert isinstance(client, SDKClient) and isinstance(client.backend, HeadraceBackend)
    assert isinstance(TrainerClient(LocalProcessBackendConfig()).backend, LocalProcessBackend)
    assert backend_of(tmp_path, "KubernetesBackendConfig()", KUBECONFIG) == "KubernetesBackend"
    with pytest.raises(ValueError, match="Invalid backend config"):
        TrainerClient("kubernetes")  # type: ignore[arg-type]


def test_an_instance_and_a_statedir_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="uri and statedir exclude each other"):
        HeadraceBackendConfig(uri="local:///run/flux/local", statedir=tmp_path)


def test_without_one_it_is_the_kubernetes_of_this_machine_or_headrace(tmp_path: Path) -> None:
    assert backend_of(tmp_path) == "HeadraceBackend"
    assert backend_of(tmp_path, "KubernetesBackendConfig()") == "ConfigException"
    assert backend_of(tmp_path, "", KUBECONFIG) == "KubernetesBackend"
    assert backend_of(tmp_path, "", "current-context: missing") == "ConfigException"


@pytest.mark.parametrize("given", [{"url": "x"}, {"uri": 3}, {"runtimes": "file.yaml"}, {"statedir": 3}])
def test_a_configuration_that_is_wrong_is_a_value_error(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        HeadraceBackendConfig(**given)


@pytest.mark.parametrize(
    ("uri", "error", "rule"),
    [
        ("local:///missing", RuntimeError, "the instance local:///missing: "),
        ("nonsense:x", RuntimeError, "uri: nonsense:x: No plugin for URI scheme nonsense"),
        ("nonsense:x", ValueError, "uri: nonsense:x: No plugin for URI scheme nonsense"),
    ],
)
def test_an_instance_that_is_not_there_is_named(uri: str, error: type[Exception], rule: str) -> None:
    client = TrainerClient(HeadraceBackendConfig(uri=uri))
    for ask in (client.list_jobs, lambda: client.get_job("x")):
        with pytest.raises(error) as caught:
            ask()
        assert str(caught.value).startswith(rule)


def test_the_processes_of_jobs_need_nothing_of_the_sdk() -> None:
    """It takes a second to import."""
    # The runner imports the latter when it begins.
    text = "import sys, headrace.kubeflow.processes, headrace.minicluster.run.local; print([*sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert not {"'kubeflow'", "'pydantic'", "'kubernetes'"} & set(loaded.strip("[]\n").split(", "))


def test_without_the_sdk_the_extra_is_named() -> None:
    text = "import sys; sys.modules['kubeflow'] = None\nfrom headrace.kubeflow import TrainerClient"
    done = subprocess.run([sys.executable, "-c", text], stderr=subprocess.PIPE, text=True, check=False)
    assert (
        done.stderr.splitlines()[-1]
        == "ImportError: the Kubeflow SDK is not installed: pip install '.[kubeflow]' in a copy of the repository"
    )
    with pytest.raises(ImportError, match="cannot import name 'Other'"):
        from headrace.kubeflow import Other  # type: ignore[attr-defined] # noqa: F401
