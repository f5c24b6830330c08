"""Building the world's programs into the cache, with a stand-in for `go` that records what it is asked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from goodput_world import binaries, gobuild
from goodput_world.binaries import ensure
from goodput_world.errors import BinaryError
from goodput_world.gotargets import GROUPS

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"]

FAKE_GO = """#!/bin/sh
if [ "$1" = version ]; then echo "go version ${FAKE_GO_VERSION:-go1.26.8} linux/amd64"; exit 0; fi
case "$1" in
build) while [ "$1" != -o ]; do shift; done; target="$2" ;;
install) target="$GOBIN/helm" ;;
esac
name=$(basename "$target")
echo "$name" >> "$FAKE_GO_CALLS"
echo k8s.io/some/package
sleep "${FAKE_GO_SECONDS:-0}"
if [ "$name" = "$FAKE_GO_SLOW" ]; then sleep 120; fi
echo half > "$target"
if [ "$name" = "$FAKE_GO_FAILS" ]; then echo "undefined: thing" >&2; exit 1; fi
chmod +x "$target"
"""


class Bench:
    """A machine with nothing but the stand-in and an empty cache."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache = folder / "cache"
        self.calls_file = folder / "calls"
        self.progress: list[str] = []
        tools = folder / "tools"
        tools.mkdir()
        (tools / "go").write_text(FAKE_GO)
        (tools / "go").chmod(0o755)
        for name in ("sh", "basename", "sleep", "chmod"):
            (tools / name).symlink_to(shutil.which(name) or name)
        monkeypatch.setenv("PATH", str(tools))
        monkeypatch.setenv("GOODPUT_CACHE", str(self.cache))
        monkeypatch.setenv("FAKE_GO_CALLS", str(self.calls_file))
        for name in ("KUBEBUILDER_ASSETS", "GOODPUT_BUILD", "FAKE_GO_FAILS", "FAKE_GO_SLOW"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(binaries, "find_outside", dict)

    @property
    def built(self) -> list[str]:
        """What `go` was asked to build, in order."""
        return self.calls_file.read_text().split() if self.calls_file.exists() else []

    def ensure(self, *only: str) -> binaries.Binaries:
        """`ensure` of some groups, or of all."""
        return ensure(self.progress.append, only=only or None)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A fresh machine."""
    return Bench(tmp_path, monkeypatch)


def test_everything_is_built_once(bench: Bench) -> None:
    """The first call builds every program into the cache; the second builds nothing and finds the same."""
    first = bench.ensure()
    assert bench.built == [*PROGRAMS, "prometheus", "helm"]
    assert first.kube_apiserver.is_relative_to(bench.cache)
    assert all(getattr(first, binaries.field_of(name)).exists() for name in [*PROGRAMS, "prometheus", "helm"])

    assert bench.ensure() == first
    assert len(bench.built) == 7


def test_a_failed_build_resumes_where_it_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error carries the compiler's words; the half-written program is not taken for a whole one; what was built
    before is not built again."""
    monkeypatch.setenv("FAKE_GO_FAILS", "kube-apiserver")
    with pytest.raises(BinaryError, match=r"building kube-apiserver failed[\s\S]*undefined: thing"):
        bench.ensure("control-plane")
    (folder,) = bench.cache.iterdir()
    assert not (folder / "kube-apiserver").exists()

    monkeypatch.delenv("FAKE_GO_FAILS")
    bench.ensure("control-plane")
    assert bench.built == ["etcd", "kube-apiserver", *PROGRAMS[1:]]


def test_ctrl_c_ends_the_build_and_the_next_run_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says how to go on, its `go` ends with it, and what was built stays built."""
    monkeypatch.setenv("FAKE_GO_SLOW", "kube-apiserver")
    process = subprocess.Popen(
        [sys.executable, "-m", "goodput_world.binaries", "--only", "control-plane"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "e2e")},
    )
    deadline = time.monotonic() + 60
    while bench.built != PROGRAMS[:2] and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "run it again to go on" in errors
    monkeypatch.delenv("FAKE_GO_SLOW")
    bench.ensure("control-plane")
    assert bench.built == ["etcd", "kube-apiserver", *PROGRAMS[1:]]


def test_two_runs_build_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run waits for the first, says so, and uses what that has built."""
    monkeypatch.setenv("FAKE_GO_SECONDS", "0.3")
    threads = [threading.Thread(target=bench.ensure, args=("control-plane",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert sorted(bench.built) == sorted(PROGRAMS)
    assert any("waiting for another run that builds control-plane" in line for line in bench.progress)


def test_progress_says_what_is_built_and_how_long_it_takes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line now and then: elapsed time, program, estimate, and the package that is being compiled."""
    monkeypatch.setattr(gobuild, "_REPORT_SECONDS", 0.1)
    monkeypatch.setenv("FAKE_GO_SECONDS", "0.5")
    bench.ensure("prometheus")
    assert any("building prometheus (about" in line and "now k8s.io/some/package" in line for line in bench.progress), (
        bench.progress
    )


def test_without_go_the_error_says_what_to_do(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a traceback nor a bare `No such file`."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(BinaryError, match=r"`go` is not on PATH: install Go 1\.26 or newer.*KUBEBUILDER_ASSETS"):
        bench.ensure()


def test_an_old_go_is_refused_by_name(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found before minutes of compiling."""
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.22.1")
    with pytest.raises(BinaryError, match=r"go1\.22\.1 linux/amd64 is too old: install Go 1\.26"):
        bench.ensure()
    assert bench.built == []


def test_another_go_has_a_cache_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key holds the Go version, so an upgrade of Go never mixes with what the old one built."""
    before = gobuild.cache_folder(GROUPS[0])
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.27.0")
    assert gobuild.cache_folder(GROUPS[0]) != before


def test_the_key_follows_the_checksums(bench: Bench, tmp_path: Path) -> None:
    """Another go.sum, another folder."""
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module m\n")
    (module / "go.sum").write_text("one\n")
    group = gobuild.Group("m", module, "-s", ())
    before = gobuild.cache_folder(group)
    (module / "go.sum").write_text("two\n")
    assert gobuild.cache_folder(group) != before
    (module / "go.sum").write_text("one\n")
    assert gobuild.cache_folder(group) == before


def test_a_run_that_must_not_build_says_what_is_missing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """GOODPUT_BUILD=never names the programs and how to get them."""
    monkeypatch.setenv("GOODPUT_BUILD", "never")
    with pytest.raises(BinaryError, match=r"etcd.*kubectl \(control-plane\) found neither.*make binaries"):
        bench.ensure()
    assert bench.built == []


@pytest.mark.parametrize(
    ("variables", "want"),
    [
        pytest.param({"GOODPUT_CACHE": "/a"}, "/a", id="goodput-cache"),
        pytest.param({"GOODPUT_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a", id="goodput-cache-first"),
        pytest.param({"XDG_CACHE_HOME": "/b"}, "/b/goodput", id="xdg"),
        pytest.param({"HOME": "/c"}, "/c/.cache/goodput", id="home"),
    ],
)
def test_where_the_cache_is(variables: dict[str, str], want: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`${GOODPUT_CACHE:-${XDG_CACHE_HOME:-~/.cache}/goodput}`."""
    for name in ("GOODPUT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert gobuild.cache_root() == Path(want)
