"""Base of all API models: strict where the API server is, silent about fields of a newer version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from goodput.api.rules import VALIDATIONS, Rule, matches
from goodput.domain.errors import InvalidObject


def _whole_number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int = Annotated[int, Strict()]
Bool = Annotated[bool, Strict()]

MAX_NAME = 253
_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
# RFC 1123 subdomain: labels with dots between them, never two dots in a row.
SUBDOMAIN = rf"{_LABEL}(?:[.]{_LABEL})*"

# Name of a namespace, a volume or a container: RFC 1123 label.
LabelName = Annotated[
    str,
    Field(min_length=1, max_length=63),
    matches(_LABEL, "a name here is at most 63 characters: lower-case letters, digits and -, not first or last"),
]
# Name of most objects: RFC 1123 subdomain.
ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME),
    matches(
        SUBDOMAIN,
        "the name of an object is lower-case letters, digits, - and ., beginning and ending with a letter or digit",
    ),
]
# Key in the data of a Secret or ConfigMap.
DataKey = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME),
    matches("[-._a-zA-Z0-9]+", "a key of a Secret or ConfigMap is letters, digits, -, _ and ."),
]


class ApiModel(BaseModel):
    """One object of the API. Unset and null mean the same, and so do 2 and 2.0, since JSON has one kind of number.

    Unknown fields are a newer version's and are ignored.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _as_the_api_server_reads_it(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping):
            return {key: _whole_number(value) for key, value in raw.items() if value is not None}
        return raw

    @model_validator(mode="after")
    def _obeys_rules(self) -> Self:
        for rule in self.RULES:
            rule.check(self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json_schema = handler.resolve_ref_schema(handler(schema))
        for name, info in cls.model_fields.items():
            if isinstance(info.default_factory, type) and issubclass(info.default_factory, ApiModel):
                # Defaults inside an object count only where the object is there.
                json_schema["properties"][info.alias or name]["default"] = {}
        if cls.RULES:
            json_schema[VALIDATIONS] = [rule.as_validation() for rule in cls.RULES]
        return json_schema

    def to_dict(self) -> dict[str, Any]:
        """As Kubernetes writes it: camelCase, without what is unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Metadata(ApiModel):
    """The part of ObjectMeta that Goodput reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: Int = 0
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class ApiObject(ApiModel):
    """A whole object with metadata, spec and status."""

    metadata: Metadata

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """The object that `raw` (as decoded from JSON) describes; InvalidObject names the first wrong field."""
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InvalidObject(*_field_and_message(first)) from error


# Users write YAML, and know no tuples or instances of classes.
_PLAIN_WORDS = {
    "tuple_type": "Input should be a list",
    "list_type": "Input should be a list",
    "dict_type": "Input should be an object",
    "model_type": "Input should be an object",
    "model_attributes_type": "Input should be an object",
}


def _field_and_message(error: Mapping[str, Any]) -> tuple[str, str]:
    path = ""
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    context = error.get("ctx", {})
    path = (path + str(context.get("path", ""))).lstrip(".")
    if error["type"] == "missing":
        return path, "required, but not set"
    message = _PLAIN_WORDS.get(error["type"], str(error["msg"]))
    return path, f"{message}, not {error['input']!r}" if _is_short(error) else message


def _is_short(error: Mapping[str, Any]) -> bool:
    # Rules speak for themselves; pydantic's own messages do not quote the value. Long or nested values help nobody.
    return error["type"] not in ("rule", "int_or_string") and len(repr(error["input"])) <= 60


def wrong(message: str) -> PydanticCustomError:
    """An error to raise in a validator, with a message for users."""
    return PydanticCustomError("rule", "{message}", {"message": message, "path": ""})
