"""How busy the machine was."""

from __future__ import annotations

from pathlib import Path

import pytest

from goodput_world.demo.machine import CpuWait, cpu_wait


def test_the_share_is_of_the_time_between(tmp_path: Path) -> None:
    """30 s of waiting in 120 s is a quarter."""
    pressure = tmp_path / "cpu"
    pressure.write_text("some avg10=1.00 avg60=2.00 avg300=3.00 total=30000000\nfull avg10=0.00 total=7\n")

    now = cpu_wait(pressure)

    assert now is not None
    assert now.waited_microseconds == 30_000_000
    assert CpuWait(30_000_000, 220.0).share_since(CpuWait(0, 100.0)) == pytest.approx(0.25)
    assert now.share_since(now) is None


def test_a_kernel_that_does_not_tell_is_no_zero(tmp_path: Path) -> None:
    """Absent is None."""
    assert cpu_wait(tmp_path / "missing") is None
    (tmp_path / "cpu").write_text("nothing of the kind\n")
    assert cpu_wait(tmp_path / "cpu") is None
