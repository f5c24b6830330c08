"""Whether an object already is as we render it: the first difference in words, or None.

The API server adds defaults and other writers add fields of their own, so only what we render is compared. Lists that
server-side apply merges by key are matched by that key; all others must agree element by element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from goodput.api.quantities import parse_quantity

# Field name of a list -> key by which server-side apply merges it.
_MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
}
# Maps that are one value: an entry that we do not render is a difference.
_ATOMIC_MAPS = frozenset({"selector", "matchLabels", "nodeSelector"})
# Lists whose items are whole values, to which the API server adds nothing: there a field that we do not render changes
# what the others mean.
_WHOLE_ITEMS = frozenset({"ingress", "from", "rules"})
_QUANTITY_MAPS = frozenset({"requests", "limits"})
_QUANTITY_FIELDS = frozenset({"sizeLimit"})
# Fields whose absence is not `false` to the API server, but true or the choice of another object: it keeps their false.
# It leaves out every other false, `readOnly` for one, as it leaves out what is empty.
_THREE_VALUED = frozenset({"allowPrivilegeEscalation", "automountServiceAccountToken", "enableServiceLinks"})
_MAX_SHOWN_CHARACTERS = 120


def compare(existing: Mapping[str, Any] | None, desired: Mapping[str, Any]) -> str | None:
    """First difference as `path: have X, want Y`, or None. An object that does not exist differs as a whole."""
    if existing is None:
        return "does not exist"
    return _map(existing, desired, "", "")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[: _MAX_SHOWN_CHARACTERS - 3] + "..."


def _differs(path: str, have: Any, want: Any) -> str:
    return f"{path}: have {_shown(have)}, want {_shown(want)}"


def _is_left_out(field: str, value: Any) -> bool:
    """Whether the API server drops the field when it has this value."""
    if value is False:
        return field not in _THREE_VALUED
    return value is None or value in ({}, [], "")


def _map(have: Mapping[str, Any], want: Mapping[str, Any], path: str, field: str) -> str | None:
    if field in _ATOMIC_MAPS and set(have) != set(want):
        return _differs(path, dict(have), dict(want))
    for key, wanted in want.items():
        # Most of an object is equal: that is found out in C, without a walk.
        if key in have and have[key] == wanted:
            continue
        where = f"{path}.{key}" if path else key
        if key not in have:
            if _is_left_out(key, wanted):
                continue
            return f"{where}: missing, want {_shown(wanted)}"
        quantity = field in _QUANTITY_MAPS or key in _QUANTITY_FIELDS
        found = _quantity(have[key], wanted, where) if quantity else _value(have[key], wanted, where, key)
        if found is not None:
            return found
    return None


def _value(have: Any, want: Any, path: str, field: str) -> str | None:
    if isinstance(want, Mapping):
        return _map(have, want, path, field) if isinstance(have, Mapping) else _differs(path, have, want)
    if isinstance(want, list | tuple):
        return _list(have, want, path, field) if isinstance(have, list | tuple) else _differs(path, have, want)
    return None if have == want else _differs(path, have, want)


def _list(have: Sequence[Any], want: Sequence[Any], path: str, field: str) -> str | None:
    merge_key = _MERGE_KEYS.get(field)
    if merge_key is not None and all(isinstance(item, Mapping) and merge_key in item for item in want):
        by_key = {item.get(merge_key): item for item in have if isinstance(item, Mapping)}
        for item in want:
            where = f"{path}[{item[merge_key]}]"
            if item[merge_key] not in by_key:
                return f"{where}: missing"
            found = _map(by_key[item[merge_key]], item, where, "")
            if found is not None:
                return found
        return None
    if len(have) != len(want):
        return _differs(path, list(have), list(want))
    for index, (left, right) in enumerate(zip(have, want, strict=True)):
        if field in _WHOLE_ITEMS and {*left} != {*right}:
            return _differs(f"{path}[{index}]", left, right)
        found = _value(left, right, f"{path}[{index}]", "")
        if found is not None:
            return found
    return None


def _quantity(have: Any, want: Any, path: str) -> str | None:
    if have == want:
        return None
    try:
        same = parse_quantity(str(have)) == parse_quantity(str(want))
    except ValueError:
        same = False
    return None if same else _differs(path, have, want)
