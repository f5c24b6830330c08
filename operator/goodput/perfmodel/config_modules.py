"""The multiplied modules of a decoder by their names, and which of them a list in `quantization_config` names.

A name may be whole (`model.layers.3.self_attn.q_proj`), of a part (`self_attn`), hold wildcards (`*.mlp.experts*`) or
be an expression (`re:.*down_proj`). Names of a tower, or of a layer past the last, name nothing of the decoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

from goodput.domain.values import Value
from goodput.perfmodel.config_experts import FeedForward
from goodput.perfmodel.config_expressions import Expressions
from goodput.perfmodel.config_fields import Fields
from goodput.perfmodel.config_layers import Feed, Layer, Mixer
from goodput.perfmodel.config_states import Part

_QUERY = ("q_proj", "wq", "qkv_proj", "c_attn", "Wqkv", "query_key_value", "qkv", "W_pack", "q_b_proj", "wq_b")
_KEY = ("k_proj", "wk", "qkv_proj", "c_attn", "Wqkv", "query_key_value", "qkv", "W_pack")
_VALUE = ("v_proj", "wv", "qkv_proj", "c_attn", "Wqkv", "query_key_value", "qkv", "W_pack")
_OUTPUT = ("o_proj", "wo", "out_proj", "c_proj", "dense", "proj", "wo_a", "wo_b")
_LATENT = ("q_a_proj", "kv_a_proj_with_mqa", "fused_qkv_a_proj", "wq_a", "wkv", "indexer")
_STATE_IN = ("in_proj", "in_proj_qkvz", "in_proj_qkv", "qkv_proj", "q_proj")
_GATE = ("gate_proj", "w1", "gate_up_proj", "w13")
_UP = ("up_proj", "w3", "gate_up_proj", "w13", "c_fc", "fc1", "dense_h_to_4h")
_DOWN = ("down_proj", "w2", "c_proj", "fc2", "dense_4h_to_h")
_ATTENTION = ("self_attn", "attn", "attention", "self_attention", "mixer")
_STATE = ("linear_attn", "mamba", "mixer", "conv", "short_conv")
_DENSE = ("mlp", "feed_forward", "ffn", "mixer")
_BESIDE_EXPERTS = ("mlp", "mlps", "residual_mlp", "feed_forward")
_SHARED = (
    *("mlp.shared_expert", "mlp.shared_experts", "mlp.shared_mlp", "feed_forward.shared_expert", "ffn.shared_experts"),
    *("mixer.shared_experts", "block_sparse_moe.shared_experts", "moe.shared_experts", "shared_mlp", "share_expert"),
)
_EXPERTS = ("experts", "moe.experts", "block_sparse_moe.experts")
_EXPERTS_IN_FEED = (*_EXPERTS, "mlp.experts", "feed_forward.experts", "ffn.experts", "mixer.experts")
# What stands before the number of a layer, and before that word, in names of the decoder.
_LAYER_WORDS = ("layers", "h", "blocks", "block", "layer")
_ROOTS = frozenset(
    {"", "base_model", "module", "model", "language_model", "text_model", "transformer", "backbone", "decoder"}
    | {"thinker", "llm", "gpt_neox"}
)


_EVERY_LAYER = re.compile(r"\.\*[.*]*$")
_ONE_EXPERT = re.compile(r"(.*\bexperts\.)([0-9]{1,9})(\..*)?")
Shares = tuple[tuple[float, ...], ...]  # of each module of each layer


class ModulePart(StrEnum):
    """Which part of the architecture a module counts to."""

    ATTENTION = "attention"
    DENSE = "dense"
    EXPERTS = "experts"


class Module(Value, frozen=True):
    """One module of one layer; `names` are those that families give it, below the layer."""

    part: ModulePart
    parameters: float
    names: tuple[str, ...]


class Modules(Value, frozen=True, kw_only=True):
    """The modules of every layer. Routers are none: no engine quantises them."""

    kinds: tuple[tuple[Module, ...], ...]
    of_layer: tuple[int, ...]  # which of `kinds` each layer has
    experts: int

    def named(self, fields: Fields, where: str, patterns: Iterable[str]) -> Shares:
        """Share of each module of each layer that `patterns`, the list in field `where`, name."""
        shares = [[0.0] * len(self.kinds[kind]) for kind in self.of_layer]
        experts: dict[tuple[int, int], set[int]] = {}
        known: dict[tuple[int, str, bool], tuple[int, ...]] = {}
        expressions, some_whole = Expressions(fields, where), False
        for pattern in patterns:
            if pattern.startswith("re:"):
                for index, positions in enumerate(expressions.matches(pattern.removeprefix("re:"), self)):
                    for position in positions:
                        shares[index][position] = 1.0
                continue
            numbers, tail, placed = _placed(pattern, len(self.of_layer))
            some_whole = some_whole or (placed and not numbers and _EVERY_LAYER.search(pattern) is not None)
            one = _ONE_EXPERT.fullmatch(tail)
            key = f"{one[1]}0{one[3] or ''}" if one else tail
            for index in numbers:
                kind = self.of_layer[index]
                if (kind, key, placed) not in known:
                    known[kind, key, placed] = _positions(self.kinds[kind], key, placed=placed)
                for position in known[kind, key, placed]:
                    if one is None:
                        shares[index][position] = 1.0
                    elif int(one[2]) < self.experts:
                        experts.setdefault((index, position), set()).add(int(one[2]))
        for (index, position), listed in experts.items():
            shares[index][position] = max(shares[index][position], len(listed) / self.experts)
        if some_whole:
            self._leave_dense(shares)
        return tuple(map(tuple, shares))

    def _leave_dense(self, shares: list[list[float]]) -> None:
        """Whole layers by wildcard, their numbers unsaid: a prediction head's, or, where what stands beside experts is
        left as it was, those that have no experts."""
        beside: list[tuple[int, int]] = []
        alone: list[tuple[int, int]] = []
        for index, kind in enumerate(self.of_layer):
            layer = self.kinds[kind]
            found = beside if any(module.part is ModulePart.EXPERTS for module in layer) else alone
            found += [(index, at) for at, module in enumerate(layer) if module.part is ModulePart.DENSE]
        if beside and all(shares[index][at] == 1.0 for index, at in beside):
            for index, at in alone:
                shares[index][at] = 1.0


def decoder_modules(layers: Sequence[Layer], parts: Sequence[Part], feed: FeedForward) -> Modules:
    """Modules of the decoder whose layers mix tokens with `parts`."""
    known: dict[tuple[Layer, Part, float], int] = {}
    kinds: list[tuple[Module, ...]] = []
    of_layer = []
    for layer, part, dense in zip(layers, parts, feed.layers_dense, strict=True):
        key = (layer, part, dense)
        if key not in known:
            known[key] = len(kinds)
            kinds.append((*_attention(layer, part), *_feed(layer, dense, feed)))
        of_layer.append(known[key])
    return Modules(kinds=tuple(kinds), of_layer=tuple(of_layer), experts=feed.experts)


def _attention(layer: Layer, part: Part) -> list[Module]:
    """Projections of what mixes tokens. Of a state, the input is taken for two thirds of it."""
    rest = part.parameters - part.kv_projection - part.replicated - part.absorbed
    holders: tuple[str, ...]
    if layer.mixer in (Mixer.FULL, Mixer.WINDOW, Mixer.CHUNK, Mixer.LINEAR):
        holders, output = _ATTENTION, part.output
    else:
        holders, output = _STATE, rest / 3.0
        if layer.mixer is Mixer.KIMI_DELTA:
            holders = ("self_attn",)
        elif layer.mixer in (Mixer.PARALLEL, Mixer.LIGHTNING):
            holders = (*_ATTENTION, *_STATE)
    sizes = (
        (rest - output, _QUERY if part.output else _STATE_IN),
        (part.kv_projection / 2.0, _KEY),
        (part.kv_projection / 2.0, _VALUE),
        (part.replicated, _LATENT),
        (part.absorbed, ("kv_b_proj",)),
        (output, _OUTPUT),
    )
    return [Module(ModulePart.ATTENTION, size, _below(holders, names)) for size, names in sizes if size]


def _feed(layer: Layer, dense: float, feed: FeedForward) -> list[Module]:
    projections = (_GATE, _UP, _DOWN) if feed.matrices > 2 else (_UP, _DOWN)
    found = []
    holders: tuple[str, ...]
    if dense:
        holders = _DENSE if layer.feed is not Feed.SPARSE else _SHARED
        holders = _BESIDE_EXPERTS if layer.feed is Feed.BOTH else holders
        found += [Module(ModulePart.DENSE, dense / len(projections), _below(holders, each)) for each in projections]
    if layer.feed in (Feed.SPARSE, Feed.BOTH):
        # Beside a dense layer that is called mlp, experts are held elsewhere.
        holders = _EXPERTS if layer.feed is Feed.BOTH else _EXPERTS_IN_FEED
        one = feed.experts_total / feed.sparse_layers / len(projections)
        for each in projections:
            names = (*_below(holders, each), *_below((f"{holder}.0" for holder in holders), each), *holders)
            found.append(Module(ModulePart.EXPERTS, one, names))
    return found


def _below(holders: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{holder}.{name}" for holder in holders for name in names)


def _placed(pattern: str, layers: int) -> tuple[Sequence[int], str, bool]:
    """(layers, name, whether it stands below them) of a name; no layers: it names nothing of the decoder."""
    words = pattern.split(".")
    place = next((at for at, word in enumerate(words[:-1]) if word.strip("*") in _LAYER_WORDS), None)
    if place is None:
        return range(layers), pattern, False
    if any(word.strip("*") not in _ROOTS for word in words[:place]):
        return (), "", False
    number, tail = words[place + 1], ".".join(words[place + 2 :])
    if not number.strip("*") and not tail.strip("*."):
        return (), "", True  # every layer as it was would leave nothing quantised: see `_leave_dense`
    if number.isascii() and number.isdecimal() and len(number) < 10:
        return ((int(number),) if int(number) < layers else ()), tail, True
    return [index for index in range(layers) if fnmatchcase(str(index), number)], tail, True


def _positions(layer: tuple[Module, ...], key: str, *, placed: bool) -> tuple[int, ...]:
    """Modules of the layer that `key` names: from the layer on where it is `placed`, else by any run of words."""
    if not key.strip("*."):
        return tuple(range(len(layer))) if placed else ()
    before = "" if placed else "model.layers.0."
    found = []
    for at, module in enumerate(layer):
        for name in module.names:
            if "*" in key or "?" in key:
                named = any(fnmatchcase(before + each, key) for each in _holders(name))
            else:
                named = f".{name}.".startswith(f".{key}.") if placed else f".{key}." in f".{name}."
            if named:
                found.append(at)
                break
    return tuple(found)


def _holders(name: str) -> list[str]:
    """The name, and those of all modules that hold it."""
    words = name.split(".")
    return [".".join(words[: at + 1]) for at in range(len(words))]
