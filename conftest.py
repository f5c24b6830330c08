"""Skipped tests fail the run under --fail-on-skip, unless tests/skips.txt gives the reason; Ctrl-C means Ctrl-C."""

from __future__ import annotations

import fnmatch
import signal
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

# Machines are shared and noisy: how long an example takes says nothing about the code.
hypothesis.settings.register_profile(
    "shared-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared-machine")

_SKIPPED = "goodput-skipped"
_SKIPS = Path(__file__).resolve().parent / "tests" / "skips.txt"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that CI uses."""
    parser.addoption(
        "--fail-on-skip", action="store_true", help="fail when a test is skipped that tests/skips.txt does not name"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the skips when asked to; let programs under test hear Ctrl-C.

    A shell starts what it puts in the background with SIGINT ignored, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--fail-on-skip"):
        config.pluginmanager.register(SkipWatch(read_skips(_SKIPS.read_text())), "goodput-skip-watch")


# Where there are two workers these follow the unit tests in theirs, beside the other end-to-end tests: they have worlds
# of their own, in which little depends on times.
_BESIDE = ("test_conditions.py", "test_random.py", "test_world_end.py")


class ByWorld(LoadScopeScheduling):
    """Unit tests go to one worker, end-to-end tests to the one that has their world, in the order of a single run."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """Which tests one worker runs, as one after another."""
    path = nodeid.partition("::")[0]
    if not path.startswith("e2e/"):
        return "unit"
    return "beside" if path.endswith(_BESIDE) else "world"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """How `make test` shares tests among its workers: `--dist loadscope`, with these groups for scopes."""
    return ByWorld(config, log) if config.getoption("dist") == "loadscope" else None


def read_skips(text: str) -> dict[str, str]:
    """Pattern of test ids -> reason, from lines `PATTERN: REASON`; blank lines and `#` comments are dropped.

    Raises UsageError for a line without a reason.
    """
    allowed = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pattern, found, reason = line.partition(": ")
        if not found or not reason.strip():
            raise pytest.UsageError(f"tests/skips.txt:{number}: write `PATTERN: REASON`, got {line!r}")
        allowed[pattern.strip()] = reason.strip()
    return allowed


class SkipWatch:
    """Collects skips that nobody explained and turns the run red for them. An expected failure (xfail) is no skip."""

    def __init__(self, allowed: dict[str, str]) -> None:
        """`allowed` maps patterns of test ids to reasons."""
        self.allowed = allowed
        self.unexplained: list[str] = []

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        explained = any(report.nodeid == pattern or fnmatch.fnmatch(report.nodeid, pattern) for pattern in self.allowed)
        if report.skipped and not hasattr(report, "wasxfail") and not explained:
            self.unexplained.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that was skipped when it ran."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that was skipped as a whole."""
        self._note(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """What a worker saw skipped while it collected; of tests that ran the main process hears anyhow."""
        told = getattr(node, "workeroutput", {}).get(_SKIPPED, ())
        self.unexplained += [nodeid for nodeid in told if nodeid not in self.unexplained]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run; a worker tells the main process."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_SKIPPED] = self.unexplained
            return
        if self.unexplained and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which."""
        if self.unexplained:
            terminalreporter.section("skipped without a reason in tests/skips.txt", red=True)
            for nodeid in self.unexplained:
                terminalreporter.write_line(nodeid)
