"""What the world builds from Go, and how: one group per Go module."""

from __future__ import annotations

from pathlib import Path

from goodput_world.gobuild import Group, Target

_MODULES = Path(__file__).resolve().parent.parent / "world-binaries"

KUBERNETES_VERSION = "v1.36.3"
PROMETHEUS_VERSION = "3.13.2"
"""Its Go module calls this v0.313.2."""
HELM_VERSION = "v4.3.1"

_STRIP = "-s -w"
_VERSION_PACKAGE = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.removeprefix("v").split(".")

_KUBERNETES_LDFLAGS = (
    f"{_STRIP} -X {_VERSION_PACKAGE}.gitVersion={KUBERNETES_VERSION}"
    f" -X {_VERSION_PACKAGE}.gitMajor={_MAJOR} -X {_VERSION_PACKAGE}.gitMinor={_MINOR}"
)
"""Without a version the API server reports v0.0.0, and clients balk."""

GROUPS = (
    Group(
        name="control-plane",
        module=_MODULES / "controlplane",
        ldflags=_KUBERNETES_LDFLAGS,
        targets=(
            Target("etcd", "go.etcd.io/etcd/server/v3", 45),
            Target("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 600),
            Target("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", 130),
            Target("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 40),
            Target("kubectl", "k8s.io/kubernetes/cmd/kubectl", 90),
        ),
    ),
    Group(
        name="prometheus",
        module=_MODULES / "prometheus",
        ldflags=f"{_STRIP} -X github.com/prometheus/common/version.Version={PROMETHEUS_VERSION}",
        tags="netgo,remove_all_sd,enable_kubernetes_sd",
        targets=(Target("prometheus", "github.com/prometheus/prometheus/cmd/prometheus", 300),),
    ),
    Group(
        name="helm",
        module=None,  # installable as it is: its go.mod replaces nothing
        ldflags=_STRIP,
        targets=(Target("helm", f"helm.sh/helm/v4/cmd/helm@{HELM_VERSION}", 150),),
    ),
)
"""The seconds are what a build took on two idle cores with an empty compile cache, in this order."""
