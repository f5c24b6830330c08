"""The command lines of the control plane. Each flag that is not plain wiring says why it is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goodput_world import kubeconfig
from goodput_world.controlplane_layout import Layout
from goodput_world.slots import Slot

_LOOPBACK = "127.0.0.1"


def etcd_flags(layout: Layout, ports: Mapping[str, int]) -> list[str]:
    """etcd, alone and without fsync: nothing here needs to survive a power cut."""
    client = f"http://{_LOOPBACK}:{ports['etcd']}"
    peer = f"http://{_LOOPBACK}:{ports['etcd-peer']}"
    return [
        "--name=world",
        f"--data-dir={layout.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=world={peer}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",  # the scale tests keep 20,000 pods and their history
        "--log-level=warn",
    ]


def apiserver_flags(layout: Layout, ports: Mapping[str, int], slot: Slot) -> list[str]:
    """The API server with its default admission plugins, RBAC, static tokens and an audit log of writes."""
    return [
        f"--etcd-servers=http://{_LOOPBACK}:{ports['etcd']}",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={ports['apiserver']}",
        # An address must be advertised, a loopback one is refused, and a machine without a network has no other.
        # Nothing connects to it (RFC 5737 keeps it for documentation), for no endpoints are written either.
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={layout.certificates}",
        f"--service-cluster-ip-range={slot.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged",  # as clusters have it: what a namespace may do is for Pod Security to say
        f"--token-auth-file={layout.tokens}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.service_account_public_key}",
        f"--service-account-signing-key-file={layout.service_account_key}",
        f"--audit-policy-file={layout.audit_policy}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-mode=blocking",  # a write is in the log before its client hears of it: counts are exact
        "--audit-log-maxsize=100000",  # MB: never rotated, it is read from the start
        "--kubelet-preferred-address-types=InternalIP,Hostname",  # the names of simulated nodes resolve nowhere
        # A privileged client of the seeder would otherwise be queued behind its own 20,000 pods.
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
    ]


def scheduler_configuration(layout: Layout) -> dict[str, Any]:
    """The scheduler's file: default profile, no leader election, and no client limit that a test would measure."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(layout.kubeconfig(kubeconfig.SCHEDULER)), "qps": 500, "burst": 1000},
    }


def scheduler_flags(layout: Layout, ports: Mapping[str, int]) -> list[str]:
    """The scheduler."""
    config = layout.kubeconfig(kubeconfig.SCHEDULER)
    return [
        f"--config={layout.scheduler_config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={ports['scheduler']}",
        f"--cert-dir={layout.certificates / 'scheduler'}",
    ]


def controller_manager_flags(layout: Layout, ports: Mapping[str, int]) -> list[str]:
    """The controller-manager, each controller under its own ServiceAccount so that the audit log tells them apart."""
    config = layout.kubeconfig(kubeconfig.CONTROLLER_MANAGER)
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={ports['controller-manager']}",
        f"--cert-dir={layout.certificates / 'controller-manager'}",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={layout.service_account_key}",
        f"--root-ca-file={layout.certificate_authority}",
        # EndpointSlices refuse the loopback addresses of our pods: the agent connects Services by selector instead.
        "--controllers=*,-endpoints-controller,-endpointslice-controller",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]
