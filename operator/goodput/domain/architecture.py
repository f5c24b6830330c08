"""Structure of a decoder, by part, as far as memory and time depend on it (Hugging Face names in words)."""

from __future__ import annotations

from enum import StrEnum

from goodput.domain.values import Value

_BF16_BYTES = 2.0


class LayerKind(StrEnum):
    """What a layer keeps of the tokens before."""

    FULL = "full"  # KV of every token
    WINDOW = "window"  # KV of the last `window_tokens`
    CHUNK = "chunk"  # KV of the chunk of `window_tokens` that the token is in
    STATE = "state"  # a state of fixed size (Mamba, gated delta net)


class KvLayers(Value, frozen=True, kw_only=True):
    """Layers that keep the same of a token; the engine groups them, and every group draws from one pool."""

    kind: LayerKind
    layers: int
    # Whole heads are spread over tensor ranks and repeated beyond their number; a latent vector is one head.
    heads: int = 1
    elements_per_head: int = 0  # K and V of one token in one head of one layer
    window_tokens: int = 0
    # Bytes of a token in one layer, or of the state of a sequence, where the KV precision does not change them.
    fixed_bytes: float = 0.0
    latent: bool = False  # one vector of K that is V too (MLA), or the keys of an indexer: whole on every tensor rank
    # FLOP of one new token for one token that it attends to, in one layer: QK^T and PV of all query heads. Of a state:
    # of one new token, whatever came before.
    attention_flops: float = 0.0
    # Layers that attend to the KV that these keep, and keep none of their own (cross-layer sharing).
    sharing_layers: int = 0
    # Tokens of a block where the engine fixes them, and packs unlike pages into one block (compressed attention).
    block_tokens: int = 0
    # Tokens that a token attends to at most, though all are kept (sparse index attention); 0: all of them.
    attended_tokens: int = 0

    @property
    def reading_layers(self) -> int:
        """Layers that attend to this KV: those that keep it, and those that share it."""
        return self.layers + self.sharing_layers

    def bytes_per_token(self, element_bytes: float = _BF16_BYTES) -> float:
        """Bytes of one token in all these layers, not divided over ranks; of a state: 0."""
        if self.kind is LayerKind.STATE:
            return 0.0
        return self.layers * (self.heads * self.elements_per_head * element_bytes + self.fixed_bytes)

    @property
    def state_bytes(self) -> float:
        """Bytes of the state of one sequence in all these layers, not divided over ranks; of KV: 0."""
        return self.layers * self.fixed_bytes if self.kind is LayerKind.STATE else 0.0


class Architecture(Value, frozen=True, kw_only=True):
    """A decoder-only model. Parameters are counts, by what is done with them; `weights` says how they are stored."""

    name: str
    layers: int
    hidden_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    max_model_len: int
    # Parameters. The embedding is looked up, not multiplied: 0 where it is tied to the head.
    embedding_parameters: float
    head_parameters: float
    attention_parameters: float  # projections of all layers, linear attention and state-space layers included
    dense_parameters: float  # feed-forward of every token: dense layers, shared experts, routers
    expert_parameters: float = 0.0  # all experts of all layers
    tower_parameters: float = 0.0  # of vision and audio: never quantised, and no token of text is multiplied by them
    # Fields of the config that describe a tower of which the size is not known: it is missing above.
    unsized_towers: tuple[str, ...] = ()
    # Of those of attention: K and V projections, which shard by whole KV heads and repeat beyond their number.
    kv_projection_parameters: float = 0.0
    # What every tensor rank holds whole: of attention, latent down-projections and indexers; of dense feed-forward,
    # routers and projections to the width of latent experts.
    replicated_attention_parameters: float = 0.0
    replicated_dense_parameters: float = 0.0
    # Up-projections of latent attention, of which the engine keeps a second copy, not quantised, if they are quantised.
    absorbed_parameters: float = 0.0
    # Experts of one sparse layer, how many of them a token visits, and the layers that have some (0: dense).
    experts: int = 0
    experts_per_token: int = 0
    sparse_layers: int = 0
    kv_layers: tuple[KvLayers, ...] = ()
    # Precision in which the checkpoint stores the multiplied weights: bf16, fp8, int8, int4, nvfp4, mxfp4.
    precision: str = "bf16"
    # Bytes of one parameter (scales included): of what is quantised, and of what is not.
    quantised_bytes: float = _BF16_BYTES
    plain_bytes: float = _BF16_BYTES
    # Bytes of one that is not quantised in the checkpoint's files: the engine loads float32 in 16 bits.
    file_bytes: float = _BF16_BYTES
    # Whether experts alone are quantised (gpt-oss), or attention and feed-forward too. Embedding and head never are.
    experts_only: bool = False
    # Bytes of a parameter of attention, and of dense feed-forward, where the checkpoint stores them otherwise than
    # experts; None: `quantised_bytes`, or `plain_bytes` if `experts_only`.
    attention_bytes: float | None = None
    dense_bytes: float | None = None
    # Whether each block of 128 x 128 fp8 weights has a scale of its own: products of few tokens are slower then.
    block_scales: bool = False
    # Widths that tensor ranks cut (feed-forward layers, attention's output; those of an expert), each with the number
    # of elements that are scaled together: the part of a rank is a whole multiple of them. 1: each by itself.
    cuts: tuple[tuple[int, int], ...] = ()
    expert_cut: tuple[int, int] | None = None
    # Layers of a multi-token-prediction head that the checkpoint brings.
    mtp_layers: int = 0

    @property
    def parameters(self) -> float:
        """All parameters."""
        return self.embedding_parameters + self.multiplied_parameters + self.tower_parameters

    @property
    def multiplied_parameters(self) -> float:
        """Those that some token is multiplied by: all but the embedding and towers."""
        return self.head_parameters + self.attention_parameters + self.dense_parameters + self.expert_parameters

    @property
    def active_parameters(self) -> float:
        """Those that one token of text is multiplied by, and the embedding."""
        return self.parameters - self.tower_parameters - self.expert_parameters * (1.0 - self.expert_share)

    @property
    def expert_share(self) -> float:
        """Share of the experts that one token visits."""
        return self.experts_per_token / self.experts if self.experts else 0.0

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights as the engine holds them."""
        return (
            self._never_quantised * self.plain_bytes
            + self.attention_parameters * self.stored_attention_bytes
            + self.dense_parameters * self.stored_dense_bytes
            + self.expert_parameters * self.quantised_bytes
        )

    @property
    def checkpoint_bytes(self) -> float:
        """Bytes of the checkpoint's files, which a start reads."""
        if self.file_bytes == self.plain_bytes:
            return self.weight_bytes
        parts = (
            (self._never_quantised, self.plain_bytes),
            (self.attention_parameters, self.stored_attention_bytes),
            (self.dense_parameters, self.stored_dense_bytes),
            (self.expert_parameters, self.quantised_bytes),
        )
        return sum(count * (self.file_bytes if size == self.plain_bytes else size) for count, size in parts)

    @property
    def _never_quantised(self) -> float:
        return self.embedding_parameters + self.head_parameters + self.tower_parameters

    @property
    def stored_attention_bytes(self) -> float:
        """Bytes of one parameter of attention as stored."""
        if self.attention_bytes is not None:
            return self.attention_bytes
        return self.plain_bytes if self.experts_only else self.quantised_bytes

    @property
    def stored_dense_bytes(self) -> float:
        """Bytes of one parameter of dense feed-forward as stored."""
        if self.dense_bytes is not None:
            return self.dense_bytes
        return self.plain_bytes if self.experts_only else self.quantised_bytes

    @property
    def weight_bytes_per_parameter(self) -> float:
        """Mean bytes of a parameter as stored."""
        return self.weight_bytes / self.parameters

    @property
    def kv_bytes_per_token(self) -> float:
        """KV bytes of one token in the layers that keep every token, bf16, not divided over ranks."""
        return sum(group.bytes_per_token() for group in self.kv_layers if group.kind is LayerKind.FULL)

    @property
    def state_bytes(self) -> float:
        """Bytes of the states of one sequence (Mamba, gated delta net), not divided over ranks."""
        return sum(group.state_bytes for group in self.kv_layers)
