# ruff: noqa: F401 - libraries are loaded for the forks
"""Runs pytest again and again, each time in a fork that has the libraries loaded already: seconds become tenths.

A line of JSON on stdin, {"tree": folder, "tests": [ids], "output": file}, is answered by pytest's exit code.
"""

from __future__ import annotations

import json
import os
import sys

# What the tests import beside the code under test, which comes from the tree.
import aiohttp.test_utils
import aiohttp.web
import hypothesis.strategies
import kubernetes.client
import kubernetes.config
import orjson
import pydantic
import pytest
import pytest_asyncio
import yaml


def _run(tree: str, tests: list[str], output: str) -> int:
    os.chdir(tree)
    with open(output, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    return int(pytest.main([*options, *tests]))


def main() -> None:
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != own]
    sys.dont_write_bytecode = True
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = _run(**job)
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
