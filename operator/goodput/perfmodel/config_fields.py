"""Typed access to the fields of a config.json; every complaint names its field."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from goodput.domain.conditions import ConditionReason
from goodput.domain.errors import InvalidObject
from goodput.domain.values import Value

_LARGEST = 10**9
_MISSING = "is missing: give it as in the model's config.json"
# Other names that families give to the same thing.
_ALIASES = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "d_model"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("num_kv_heads", "multi_query_group_num", "kv_n_heads", "num_attention_groups"),
    "head_dim": ("attention_head_dim", "kv_channels"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size", "block_ff_dim"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "max_sequence_length", "max_seq_len", "seq_length", "model_max_length"),
    "num_experts_per_tok": (
        "num_experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_top_k",
        "moe_k",
        "num_experts_per_topk",
    ),
    "moe_intermediate_size": ("expert_ffn_hidden_size",),
    "n_routed_experts": ("num_local_experts", "num_experts", "moe_num_experts"),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "shared_expert_intermediate_size": (
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
    ),
    "num_nextn_predict_layers": ("mtp_num_hidden_layers", "num_mtp_modules"),
    "first_k_dense_replace": ("num_dense_layers", "moe_layer_num_skipped"),
    "moe_latent_size": ("routed_expert_hidden_size",),
}
# Families whose class has a longest context that their files leave out.
_CONTEXTS = {"falcon": 2048, "RefinedWeb": 2048, "RefinedWebModel": 2048}


def invalid(name: str, message: str) -> InvalidObject:
    """The error that names field `name` of the architecture."""
    return InvalidObject(f"spec.architecture.{name}", message, ConditionReason.ARCHITECTURE_INVALID)


class Fields(Value, frozen=True):
    """The mapping, with one name for what families name differently. `prefix` is the path of a nested mapping."""

    values: Mapping[str, Any]
    prefix: str = ""

    def name_of(self, name: str) -> str:
        """The name under which the mapping holds what is asked for as `name`."""
        if self.values.get(name) is None:
            return next((other for other in _ALIASES.get(name, ()) if self.values.get(other) is not None), name)
        return name

    def raw(self, name: str) -> Any:
        """The value as it stands, None where it is absent."""
        return self.values.get(self.name_of(name))

    def invalid(self, name: str, message: str) -> InvalidObject:
        """The error that names this field by its whole path."""
        return invalid(self.prefix + name, message)

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number above 0. Raises `InvalidObject` where it is none, or absent without a default."""
        found = self.name_of(name)
        value = self.values.get(found)
        if value is None:
            if default is None:
                raise self.invalid(name, _MISSING)
            return default
        return self._whole(found, value, least=1)

    def count(self, name: str) -> int:
        """A whole number of at least 0; 0 where it is absent."""
        found = self.name_of(name)
        value = self.values.get(found)
        return 0 if value is None else self._whole(found, value, least=0)

    def longest_context(self) -> int:
        """Tokens that a request may have."""
        return self.integer("max_position_embeddings", _CONTEXTS.get(self.text("model_type")))

    def number(self, name: str) -> float:
        """A number above 0. Raises `InvalidObject` where it is none or absent."""
        value = self.values.get(name)
        if value is None:
            raise self.invalid(name, _MISSING)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise self.invalid(name, f"must be a number, not {value!r}")
        if not 0 < value <= _LARGEST:
            raise self.invalid(name, f"must be a number above 0 and at most 1,000,000,000, not {value!r}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value; `default` where it is absent."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.invalid(name, f"must be true or false, not {value!r}")
        return value

    def text(self, name: str) -> str:
        """A text; empty where it is absent."""
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.invalid(name, f"must be a text, not {value!r}")
        return value

    def sequence(self, name: str) -> tuple[Any, ...]:
        """A list; empty where it is absent or no list."""
        value = self.values.get(name)
        return tuple(value) if isinstance(value, list | tuple) else ()

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers of at least 0; empty where it is absent or no list."""
        return tuple(self._whole(name, each, least=0) for each in self.sequence(name))

    def mapping(self, name: str) -> Fields | None:
        """A nested mapping; None where it is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.invalid(name, f"must be an object, not {value!r}")
        return Fields(value, f"{self.prefix}{name}.")

    def _whole(self, name: str, value: Any, *, least: int) -> int:
        if isinstance(value, list | tuple) and value and all(each == value[0] for each in value):
            value = value[0]  # one for each layer, all alike (Hunyuan)
        if isinstance(value, list | tuple):
            raise self.invalid(name, f"has several values, {list(value)[:4]!r}: one for all is sized, not one for each")
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise self.invalid(name, f"must be a whole number, not {value!r}")
        if value != int(value) or not least <= value <= _LARGEST:
            bound = "above 0" if least else "of at least 0"
            raise self.invalid(name, f"must be a whole number {bound} and at most 1,000,000,000, not {value!r}")
        return int(value)
