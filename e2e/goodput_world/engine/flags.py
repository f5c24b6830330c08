"""The command line of `vllm serve` 0.33: every flag, from the table beside this file.

Kinds: `switch` (no negation), `bool` (an alias negates it; `--no-<name>` is accepted too), `choice`, `int`, `human`
(an int that may be written 32k or 20G), `float`, `json` (also in dotted form, `--x.key value`), `list`, `text`,
`optional` (with or without a value). As in vLLM underscores stand for dashes and a unique prefix for a flag.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

TABLE = Path(__file__).with_name("flags.tsv")
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def human_int(text: str) -> int:
    """`32k` = 32,000, `32K` = 32,768; a fraction goes with the decimal units only."""
    if text == "-1":
        return -1
    match = _HUMAN.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}")
    number, unit = match.groups()
    if "." in number and unit not in ("k", "m", "g", "t"):
        raise argparse.ArgumentTypeError(f"Decimals are not allowed with binary suffixes: {text!r}")
    return int(float(number) * _FACTORS[unit]) if "." in number else int(number) * _FACTORS[unit]


def model_length(text: str) -> int:
    """`--max-model-len`: a human int, or `auto` for -1 (as long as fits)."""
    return -1 if text.lower() == "auto" else human_int(text)


def json_value(text: str) -> Any:
    """A JSON object or list."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(
            f"Value {text} cannot be converted to {json.loads.__name__}: {error}"
        ) from None


class _Parser(argparse.ArgumentParser):
    """Speaks as `vllm`, whatever sub-command is parsed."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the fault to standard error; exit code 2."""
        self.exit(2, f"usage: vllm serve [model_tag] [options]\nvllm: error: {message}\n")


def _add(parser: argparse.ArgumentParser, name: str, aliases: list[str], kind: str, choices: str) -> None:
    dest = name.lstrip("-").replace("-", "_")
    if kind in ("switch", "bool"):
        parser.add_argument(name, dest=dest, action="store_true", default=None)
        negations = list(aliases)
        if kind == "bool" and not name.startswith("--no-"):
            negations.append(f"--no-{name[2:]}")
        for negation in dict.fromkeys(negations):
            parser.add_argument(negation, dest=dest, action="store_false", default=None)
        return
    names = [*aliases, name]
    if kind == "choice":
        exact = choices.split(",")
        patterns = [choice[:-1] for choice in exact if choice.endswith("*")]

        def one_of(text: str) -> str:
            if text in exact or any(text.startswith(pattern) for pattern in patterns):
                return text
            listed = ", ".join(repr(choice) for choice in exact)
            raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {listed})")

        parser.add_argument(*names, dest=dest, type=one_of)
    elif kind == "list":
        parser.add_argument(*names, dest=dest, nargs="+")
    elif kind == "optional":
        parser.add_argument(*names, dest=dest, nargs="?", const="")
    elif name == "--max-model-len":
        parser.add_argument(*names, dest=dest, type=model_length)
    else:
        types: dict[str, Any] = {"int": int, "float": float, "human": human_int, "json": json_value, "text": str}
        parser.add_argument(*names, dest=dest, type=types[kind])


def rows() -> list[tuple[str, list[str], str, str]]:
    """The table: name, aliases, kind, choices."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()[1:]
    parsed = (line.split("\t") for line in lines)
    return [
        (name, [alias for alias in aliases.split(",") if alias], kind, choices)
        for name, aliases, kind, choices in parsed
    ]


def _spell(arguments: Sequence[str], json_names: set[str]) -> list[str]:
    """Dashes for underscores in flag names; dotted JSON keys gathered into one value per flag."""
    spelled: list[str] = []
    gathered: dict[str, dict[str, Any]] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            spelled.append(argument)
            continue
        name, equals, value = argument.partition("=")
        head, dot, path = name.partition(".")
        head = head.replace("_", "-")
        if dot and head in json_names:
            if not equals and rest:
                value = rest.pop(0)
            _place(gathered.setdefault(head, {}), path, value)
        else:
            spelled.append(head + dot + path + equals + value)
    for head, value_of in gathered.items():
        spelled += [head, json.dumps(value_of)]
    return spelled


def _place(target: dict[str, Any], path: str, text: str) -> None:
    """Set `a.b` in nested objects; `a+` appends to a list."""
    *parents, last = path.split(".")
    for parent in parents:
        target = target.setdefault(parent, {})
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    if last.endswith("+"):
        target.setdefault(last[:-1], []).append(value)
    else:
        target[last] = value


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags of `vllm serve`; unset ones are None. Prints as vLLM does and exits with 2 on a mistake."""
    parser = _Parser(prog="vllm", add_help=False)
    parser.add_argument("-h", "--help", action="help")
    parser.add_argument("model_tag", nargs="?")
    table = rows()
    for row in table:
        _add(parser, *row)
    return parser.parse_args(_spell(arguments, {name for name, _, kind, _ in table if kind == "json"}))
