"""The configuration of a model that does not depend on its architecture. No torch here.

`gpu_workers.models.architectures` reads a `config.json`; each architecture adds fields of its own in a subclass.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from gpu_workers.model_store.config_keys import ConfigKeys, ModelConfigError
from gpu_workers.model_store.quantized.form import QuantizedWeights
from gpu_workers.model_store.quantized.reader import read_quantization


@dataclass(frozen=True)
class ModelConfig:
    """A dense decoder with rotary positions, grouped heads and a gated feed-forward. Counts are of the whole model."""

    model_type: str
    n_layers: int
    hidden: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    max_position: int  # tokens of one sequence
    _: KW_ONLY
    tied_embeddings: bool = False
    has_head: bool = True  # False: it gives hidden states only, as embedding models do
    rms_eps: float = 1e-6
    dtype: str = "bfloat16"  # of the files: float32, float16 or bfloat16
    stored_as: str = ""  # of a GGUF file: the type of most of its weights, such as "Q4_1"; "" where unknown
    quantized: QuantizedWeights | None = None  # how the files store the weights of linear layers; None: as floats

    @property
    def layer_parameters(self) -> int:
        """Number of weights that every token of a step is multiplied with: all but the embedding and the head."""
        attention = self.hidden * self.head_dim * 2 * (self.n_heads + self.n_kv_heads)
        return self.n_layers * (attention + 3 * self.hidden * self.ffn)

    def small_layer_parameters(self, n_heads: int, n_kv_heads: int, is_first_rank: bool) -> int:
        """Number of parameters of one layer outside its projections (norms, biases), on a rank with so many heads."""
        return 2 * self.hidden

    @property
    def attention_window(self) -> int | None:
        """Tokens that a layer with a sliding window sees, itself included; None if every layer sees all tokens."""
        return None


def read_sizes(keys: ConfigKeys) -> ModelConfig:
    """The fields that all architectures have. Raises ModelConfigError naming the key."""
    hidden, n_heads = keys.positive("hidden_size"), keys.positive("num_attention_heads")
    n_kv_heads = keys.positive("num_key_value_heads", n_heads)
    if n_heads % n_kv_heads:
        raise ModelConfigError(f"num_key_value_heads: expected a divisor of {n_heads} heads, got {n_kv_heads}")
    head_dim = keys.positive("head_dim", hidden // n_heads)
    if head_dim % 2:
        raise ModelConfigError(f"head_dim: expected an even number, got {head_dim}")
    return ModelConfig(
        model_type=keys.text("model_type"),
        n_layers=keys.positive("num_hidden_layers"),
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        ffn=keys.positive("intermediate_size"),
        vocabulary=keys.positive("vocab_size"),
        max_position=keys.positive("max_position_embeddings", 2048),
        tied_embeddings=keys.flag("tie_word_embeddings", False),
        rms_eps=keys.number("rms_norm_eps", 1e-6),
        quantized=read_quantization(keys),
        dtype=str(keys.value("dtype") or keys.value("torch_dtype") or "bfloat16").removeprefix("torch."),
    )
