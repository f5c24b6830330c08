"""Regular expressions over module names, as checkpoints carry them; those that would take too long are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from goodput.domain.errors import InvalidObject
from goodput.perfmodel.config_fields import Fields

if TYPE_CHECKING:
    from goodput.perfmodel.config_modules import Modules

_ROOTS = ("model.layers", "language_model.model.layers", "model.language_model.layers", "backbone.layers", "layers")
_LONGEST_NAME = 60
_MOST_STEPS = 5e6
_QUANTIFIED_GROUP = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=")
_UNBOUNDED = re.compile(r"(?<!\\)[*+]|\{\d*,\d*\}")
# What may be there or not; `?` also ends `(?`, and makes other quantifiers lazy.
_OPTIONAL = re.compile(r"(?<![(*+?}\\])\?")
# Repeated digits stand for any number of a layer; a digit by itself, or of a class, for some.
_ANY_NUMBER = re.compile(r"(?:\\d|\[0-9\])[+*]")
_SOME_EXPERTS = re.compile(r"experts\\?\.[(\[]?(?:[0-9]|\\d)")


class Expressions:
    """Evaluates the expressions of one list (field `where`), with a budget for all of them."""

    def __init__(self, fields: Fields, where: str) -> None:
        self._fields = fields
        self._where = where
        self._steps = _MOST_STEPS

    def matches(self, pattern: str, modules: Modules) -> list[tuple[int, ...]]:
        """For each layer the modules that `pattern` matches from the start of their names.

        Raises `InvalidObject` for what is no expression, may take exponential time, or tells experts apart.
        """
        compiled, steps = self._compiled(pattern)
        plain = _ANY_NUMBER.sub("", pattern)
        if _SOME_EXPERTS.search(plain):
            raise self._refused(pattern, "names some experts of a layer by an expression: write the names out")
        numbered = re.search(r"[0-9]|\\d", plain) is not None
        roots = _ROOTS if "language" in pattern or not pattern.startswith(".*") else _ROOTS[:1]
        known: dict[int, tuple[int, ...]] = {}
        found = []
        for index, kind in enumerate(modules.of_layer):
            if numbered or kind not in known:
                layer = modules.kinds[kind]
                self._spend(steps * len(roots) * sum(len(module.names) for module in layer))
                known[kind] = tuple(
                    at
                    for at, module in enumerate(layer)
                    if any(compiled.match(f"{root}.{index}.{name}") for root in roots for name in module.names)
                )
            found.append(known[kind])
        return found

    def _compiled(self, pattern: str) -> tuple[re.Pattern[str], float]:
        """The expression, and the steps that one name may take."""
        if _QUANTIFIED_GROUP.search(pattern):
            raise self._refused(pattern, "repeats a group, which is not evaluated: write the names out")
        try:
            compiled = re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            raise self._refused(pattern, "is no regular expression") from None
        steps = _choices(pattern)
        for count in range(1, len(_UNBOUNDED.findall(pattern.removesuffix(".*"))) + 1):
            steps *= _LONGEST_NAME / count
        return compiled, steps

    def _spend(self, steps: float) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise self._fields.invalid(self._where, "has expressions that take too long: write the names out")

    def _refused(self, pattern: str, why: str) -> InvalidObject:
        return self._fields.invalid(self._where, f"{pattern[:64]!r} {why}")


def _choices(pattern: str) -> float:
    """Ways to match `pattern` that do not depend on the length of a name: alternatives, and what may be missing.

    Groups one after the other multiply them, which is what makes a search without an end.
    """
    found, alternatives, escaped, in_class = 1.0, [1], False, False
    for character in pattern:
        if escaped or character == "\\":
            escaped = not escaped
        elif in_class or character == "[":
            in_class = character != "]"
        elif character == "(":
            alternatives.append(1)
        elif character == "|":
            alternatives[-1] += 1
        elif character == ")" and len(alternatives) > 1:
            found *= alternatives.pop()
    for count in alternatives:
        found *= count
    return found * 2.0 ** min(1000, len(_OPTIONAL.findall(pattern)))
