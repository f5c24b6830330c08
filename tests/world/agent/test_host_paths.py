"""What containers see of the host, whatever their volumes cover."""

from pathlib import Path

import pytest

import goodput
import goodput_controllers
import goodput_world
from goodput_world.agent import sandbox
from goodput_world.agent.agent import _host_paths


def test_every_package_of_the_operator_is_shown_to_containers() -> None:
    """The operator's pod mounts a volume at /tmp: an installation that lies there must still be found."""
    shown = _host_paths([])
    for package in (goodput, goodput_controllers, goodput_world):
        folder = Path(package.__path__[0]).parent

        assert any(folder.is_relative_to(path) for path in shown), f"{folder} is not among {shown}"


def test_a_container_that_starts_again_finds_what_its_first_start_showed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start leaves an empty folder in the volume, where the installation was laid over it."""
    shown: list[str] = []
    monkeypatch.setattr(sandbox, "bind", lambda source, target, *, read_only: shown.append(target))
    installation, root = tmp_path / "installation", tmp_path / "root"
    installation.mkdir()
    left = Path(f"{root}{installation}")

    sandbox._offer(str(root), [str(installation)], [], over=True)
    left.mkdir(parents=True)
    sandbox._offer(str(root), [str(installation)], [], over=True)

    assert shown == [str(left), str(left)]
