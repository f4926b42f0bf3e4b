"""Connection to a cluster, and the namespace in it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hostcore_builtin_plugins.extras import require
from hostcore_engines.kubernetes.names import require_namespace
from hostcore_engines.kubernetes.settings import KubernetesSettings
from hostcore_hookspecs import FatalError, LaunchContext

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_NAMESPACE_VARIABLE: Final = "TRAINER_JOBS_NAMESPACE"
_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def namespace_of(ctx: LaunchContext, settings: KubernetesSettings) -> str:
    """The namespace of a job: its own, that of the settings, of the environment, of the pod that this is, ``default``.

    :raises FatalError: It is no name of one.
    """
    if ctx.job.resources.namespace is not None:
        return require_namespace(ctx.job.resources.namespace, "/resources/namespace")
    if settings.namespace is not None:
        return require_namespace(settings.namespace, "/launcher/namespace")
    if told := os.environ.get(_NAMESPACE_VARIABLE):
        return require_namespace(told, f"/environment/{_NAMESPACE_VARIABLE}")
    try:
        return _OWN_NAMESPACE.read_text().strip() or "default"
    except OSError:
        return "default"  # not in a cluster, or without its account


def connect(settings: KubernetesSettings) -> "ApiClient":
    """A client of the cluster that the settings name.

    :raises HostcoreError: The client is not installed (``plugin.extra_missing``).
    :raises FatalError: There is no way to a cluster.
    """
    require("kubernetes", extra="kubernetes")
    from kubernetes import client
    from kubernetes import config as untyped

    config: Any = untyped
    configuration = client.Configuration()
    told = settings.kubeconfig is not None or settings.context is not None
    try:
        if not told and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(
                config_file=None if settings.kubeconfig is None else str(settings.kubeconfig),
                context=settings.context,
                client_configuration=configuration,
                persist_config=False,
            )
    except (config.ConfigException, OSError, ValueError) as error:
        raise FatalError(
            f"no cluster is known: {error}",
            pointer="/launcher",
            hint='set "kubeconfig" or "context" in the settings of the launcher, or KUBECONFIG; `kubectl config '
            "get-contexts` shows what there is",
        ) from error
    # A failed connection is reported at once: the caller of the launcher decides when to try again.
    configuration.retries = False
    return client.ApiClient(configuration)
