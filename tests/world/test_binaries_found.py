"""Which programs are taken from outside the cache, and which are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from goodput_world.binaries import find_outside

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def fake(folder: Path, program: str, says: str, *, status: int = 0) -> Path:
    """A program that prints a line, and Go's version on a second one, as etcd and Prometheus do."""
    folder.mkdir(exist_ok=True)
    path = folder / program
    path.write_text(f"#!/bin/sh\necho '{says}'\necho 'Go Version: go1.26.8'\nexit {status}\n")
    path.chmod(0o755)
    return path


def fake_control_plane(folder: Path, version: str, *, without: str = "") -> None:
    """The three Kubernetes servers, all of one version."""
    for program in CONTROL_PLANE:
        if program != without:
            fake(folder, program, f"Kubernetes v{version}")


def test_the_folder_of_kubebuilder_assets_is_used(tmp_path: Path) -> None:
    """What the user names by KUBEBUILDER_ASSETS is taken before what PATH has."""
    fake(tmp_path / "assets", "etcd", "etcd Version: 3.6.16")
    fake(tmp_path / "path", "etcd", "etcd Version: 3.6.16")
    fake(tmp_path / "path", "helm", "v4.3.1+g0123456")

    found = find_outside({"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": str(tmp_path / "path")})

    assert found == {"etcd": tmp_path / "assets" / "etcd", "helm": tmp_path / "path" / "helm"}


@pytest.mark.parametrize(
    ("program", "says"),
    [
        pytest.param("etcd", "etcd Version: 3.4.30", id="old-etcd"),
        pytest.param("prometheus", "prometheus, version 2.42.0 (branch: HEAD)", id="debian-prometheus"),
        pytest.param("kubectl", "Client Version: v1.34.2", id="old-kubectl"),
        pytest.param("helm", "v3.9.0", id="old-helm"),
        pytest.param("prometheus", "prometheus, version  (branch: )", id="no-version"),
    ],
)
def test_an_old_or_nameless_program_on_path_is_not_used(tmp_path: Path, program: str, says: str) -> None:
    """What merely lies on PATH must say that it is new enough; Go's own version on a later line does not count."""
    fake(tmp_path, program, says)
    assert find_outside({"PATH": str(tmp_path)}) == {}


def test_a_nameless_program_that_the_user_chose_is_used(tmp_path: Path) -> None:
    """A home-made build without a version is trusted in KUBEBUILDER_ASSETS."""
    path = fake(tmp_path, "prometheus", "prometheus, version  (branch: )")
    assert find_outside({"KUBEBUILDER_ASSETS": str(tmp_path)}) == {"prometheus": path}


def test_a_broken_program_is_not_used(tmp_path: Path) -> None:
    """A program that fails to say its version (wrong architecture, missing library) would fail later, too."""
    fake(tmp_path, "etcd", "etcd Version: 3.6.16", status=1)
    assert find_outside({"KUBEBUILDER_ASSETS": str(tmp_path)}) == {}


def test_the_servers_of_kubernetes_come_as_a_set(tmp_path: Path) -> None:
    """envtest ships an API server alone: with our newer controller-manager it would be an unsupported skew."""
    fake_control_plane(tmp_path, "1.34.1", without="kube-scheduler")
    assert find_outside({"KUBEBUILDER_ASSETS": str(tmp_path)}) == {}

    fake_control_plane(tmp_path, "1.34.1")
    assert set(find_outside({"KUBEBUILDER_ASSETS": str(tmp_path)})) == set(CONTROL_PLANE)

    fake(tmp_path, "kube-scheduler", "Kubernetes v1.36.3")
    assert find_outside({"KUBEBUILDER_ASSETS": str(tmp_path)}) == {}
