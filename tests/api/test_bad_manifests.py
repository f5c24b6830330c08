"""The table of wrong manifests: its shape, and that Python refuses what the API server refuses."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml
from tests.data.bad_manifests.table import Row, rows

from goodput.api.kinds import KINDS
from goodput.api.schema import object_schema, unknown_fields
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.errors import InvalidObject

_KINDS = {kind.kind: kind for kind in KINDS}
_SCHEMAS = {kind.kind: object_schema(kind) for kind in KINDS}
# How the two name the same thing: the API server gives the whole object no path, and keys of maps brackets.
_OTHER_PATHS = {
    "<nil>": "metadata.name",
    "spec.template.labels[team]": "spec.template.labels.team",
    "spec.template.resources.requests[memory]": "spec.template.resources.requests.memory",
}


def test_the_table_is_large_and_names_are_unique() -> None:
    """At least 45 rows, 25 of them for the API server."""
    assert len(rows()) >= 45
    assert len(rows("apiserver")) >= 25
    assert not [name for name, count in Counter(row.name for row in rows()).items() if count > 1]


@pytest.mark.parametrize("row", rows("apiserver"), ids=lambda row: row.name)
def test_python_refuses_it_too(row: Row) -> None:
    """Files read offline are held to the rules of the API server: refused, for the same field."""
    raw = row.object
    unknown = list(unknown_fields(raw, _SCHEMAS[raw["kind"]]))
    if row.expect["status"] == 400:
        assert unknown == [row.expect["field"]]
        return
    if unknown:  # a misspelt key of `slo`, which the API server blames on `slo` itself
        assert all(path.startswith(row.expect["field"]) for path in unknown)
        return
    with pytest.raises(InvalidObject) as refused:
        _KINDS[raw["kind"]].model.parse(raw)
    want = _OTHER_PATHS.get(row.expect["field"], row.expect["field"])
    assert refused.value.field.startswith(want)


@pytest.mark.parametrize("row", rows("condition"), ids=lambda row: row.name)
def test_what_becomes_a_condition_parses(row: Row) -> None:
    """No rule of a schema stands in the way; type and reason exist."""
    raw = row.object
    _KINDS[raw["kind"]].model.parse(raw)
    assert not list(unknown_fields(raw, _SCHEMAS[raw["kind"]]))
    assert row.expect["type"] in set(ConditionType)
    assert row.expect["reason"] in set(ConditionReason)
    assert row.expect["status"] in ("True", "False", "Unknown")
    assert all(document["kind"] for document in yaml.safe_load_all(row.beside)) if row.beside else True
