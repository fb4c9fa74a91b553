"""The SDK's client with one more configuration: `HeadraceBackendConfig`."""

from __future__ import annotations

import logging
import os
from typing import Any

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import ContainerBackendConfig, LocalProcessBackendConfig
from kubeflow.trainer import TrainerClient as SDKClient
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import ENV_KUBECONFIG_PATH_SEPARATOR, KUBE_CONFIG_DEFAULT_LOCATION

from .backend import HeadraceBackend, HeadraceBackendConfig

_log = logging.getLogger(__name__)


class TrainerClient(SDKClient):
    """The client of the Kubeflow SDK; it uses Headrace with a `HeadraceBackendConfig`.

    With a configuration of the SDK it behaves as the SDK's client. Without any, it uses Kubernetes, the SDK's default,
    if this machine has access to a cluster, and Headrace otherwise. Raises ValueError for any other configuration.
    """

    def __init__(
        self,
        backend_config: HeadraceBackendConfig
        | KubernetesBackendConfig
        | LocalProcessBackendConfig
        | ContainerBackendConfig
        | None = None,
    ) -> None:
        if isinstance(backend_config, HeadraceBackendConfig):
            self._use(backend_config)
            return
        try:
            super().__init__(backend_config)
        except ConfigException:
            if backend_config is not None or _has_kube_config():
                raise
            _log.info("no Kubernetes is configured here: jobs run on local brokers")
            self._use(HeadraceBackendConfig())

    def _use(self, config: HeadraceBackendConfig) -> None:
        backend: Any = HeadraceBackend(config)
        self.backend = backend


def _has_kube_config() -> bool:
    paths = KUBE_CONFIG_DEFAULT_LOCATION.split(ENV_KUBECONFIG_PATH_SEPARATOR)
    return any(os.path.exists(os.path.expanduser(path)) for path in paths)
