"""The embedder's section of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpu_workers.settings import DtypeChoice
from messages.errors import ConfigError
from messages.lifecycle.model_digests import ModelDigests

MAX_BATCH_TOKENS = 2048


class EmbedderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of the process that computes embeddings. The supervisor fills in the folder and its digests."""

    model_folder: str = ""  # a folder with config.json, tokenizer.json and safetensors
    model_digests: ModelDigests = ModelDigests()  # what was in it when the server was started
    # which hidden states of a text become its vector; auto: as the model's files say, else the mean for encoders of the BERT
    # family, and the last token for decoders
    pooling: Literal["auto", "mean", "first", "last"] = "auto"
    max_length: Annotated[int, msgspec.Meta(ge=0)] = 0  # tokens of one text; 0: the limit of the model
    # of weights and activations of a decoder; auto: bfloat16 on GPUs, float32 on CPU cores
    decoder_dtype: DtypeChoice = "auto"
    device: Annotated[str, msgspec.Meta(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"  # "cpu", "cuda" or "cuda:1"
    threads: Annotated[int, msgspec.Meta(ge=0)] = 0  # of torch; 0: one for each core
    # texts that wait are computed together, up to this number of tokens; a longer text is computed alone
    batch_tokens: Annotated[int, msgspec.Meta(ge=1)] = MAX_BATCH_TOKENS

    @property
    def least_hang_s(self) -> float:
        """A batch that takes less does not hang, however short others are."""
        return 0.5 if self.device == "cpu" else 1.0

    @property
    def dtype_name(self) -> str:
        """The torch dtype's name that `decoder_dtype` stands for."""
        if self.decoder_dtype != "auto":
            return self.decoder_dtype
        return "float32" if self.device == "cpu" else "bfloat16"


def read_settings(text: bytes | msgspec.Raw) -> EmbedderSettings:
    """Decode the embedder's section of the configuration from JSON. Raises: ConfigError naming the field."""
    try:
        return msgspec.json.decode(text, type=EmbedderSettings)
    except msgspec.DecodeError as error:
        raise ConfigError(f"embedder: {error}") from None
