"""A validation rule, written once for both readers: CEL for the API server, Python for files and for old objects.

A `Rule` stands either in a model's `RULES` (then it sees the whole object) or in the `Annotated` metadata of a field
(then it sees one value). The converter in `schema.py` collects both as `x-kubernetes-validations`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

VALIDATIONS = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class Rule:
    """`cel` must be true of `self`; `holds` says the same of the parsed Python value.

    `path` is the field to blame, relative to the object, in CRD notation (`.minReplicas`); empty: the object itself.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    path: str = ""

    def check(self, value: Any) -> Any:
        """The value itself, or PydanticCustomError with `message` and, in its context, `path`."""
        if not self.holds(value):
            raise PydanticCustomError("rule", "{message}", {"message": self.message, "path": self.path})
        return value

    def as_validation(self) -> dict[str, str]:
        """The entry of `x-kubernetes-validations`."""
        validation = {"rule": self.cel, "message": self.message}
        if self.path and not self.path.startswith(".metadata"):  # the schema of metadata is not ours to point into
            validation["fieldPath"] = self.path
        return validation

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json_schema = handler(schema)
        json_schema[VALIDATIONS] = [*json_schema.get(VALIDATIONS, []), self.as_validation()]
        return json_schema


def cel_string(text: str) -> str:
    """`text` as a CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def matches(pattern: str, message: str) -> Rule:
    """The whole string matches `pattern` (RE2 syntax, no anchors), and if not, `message` says so in words.

    A schema `pattern` would answer with the expression itself, which no user can read.
    """
    compiled = re.compile(pattern)
    return Rule(
        cel=f"self.matches({cel_string(f'^(?:{pattern})$')})",
        message=message,
        holds=lambda value: compiled.fullmatch(value) is not None,
    )


# Of a prefix (253 characters), a slash and a name.
_MAX_KEY = 317


def keys_match(pattern: str, message: str, *, match: bool = True) -> Rule:
    """Every key of a map matches `pattern`, or with `match` False, none does."""
    compiled = re.compile(pattern)
    negated = "" if match else "!"
    return Rule(
        cel=f"self.all(k, size(k) <= {_MAX_KEY} && {negated}k.matches({cel_string(f'^(?:{pattern})$')}))",
        message=message,
        holds=lambda keys: all(len(key) <= _MAX_KEY and bool(compiled.fullmatch(key)) == match for key in keys),
    )


@dataclass(frozen=True, slots=True)
class ListOf:
    """How the API server merges a list, and what it therefore refuses twice.

    `ListOf()` is replaced as a whole, `ListOf("")` is a set, `ListOf("name")` is a map by that field.
    """

    key: str | None = None

    def check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """The items; PydanticCustomError names the first that was there before."""
        if self.key is None:
            return items
        seen: set[Any] = set()
        for index, item in enumerate(items):
            identity = getattr(item, self.key) if self.key else item
            if identity in seen:
                message = f"{identity!r} is there twice"
                raise PydanticCustomError("rule", "{message}", {"message": message, "path": f"[{index}]"})
            seen.add(identity)
        return items

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json_schema = handler(schema)
        json_schema["x-kubernetes-list-type"] = {None: "atomic", "": "set"}.get(self.key, "map")
        if self.key:
            json_schema["x-kubernetes-list-map-keys"] = [to_camel(self.key)]
        return json_schema
