"""What containers see of the host, whatever their volumes cover."""

from pathlib import Path

import goodput
import goodput_controllers
import goodput_world
from goodput_world.agent.agent import _host_paths


def test_every_package_of_the_operator_is_shown_to_containers() -> None:
    """The operator's pod mounts a volume at /tmp: an installation that lies there must still be found."""
    shown = _host_paths([])
    for package in (goodput, goodput_controllers, goodput_world):
        folder = Path(package.__path__[0]).parent

        assert any(folder.is_relative_to(path) for path in shown), f"{folder} is not among {shown}"
