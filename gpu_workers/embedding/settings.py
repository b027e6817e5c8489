"""The embedder's section of the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.errors import ConfigError

MAX_BATCH_TOKENS = 2048


class EmbedderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of the process that computes embeddings. The supervisor fills in the folder."""

    model_folder: str = ""  # a folder with config.json, tokenizer.json and safetensors
    device: Annotated[str, msgspec.Meta(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"  # "cpu", "cuda" or "cuda:1"
    threads: Annotated[int, msgspec.Meta(ge=0)] = 0  # of torch; 0: one for each core
    # texts that wait are computed together, up to this number of tokens; a longer text is computed alone
    batch_tokens: Annotated[int, msgspec.Meta(ge=1)] = MAX_BATCH_TOKENS


def read_settings(text: bytes | msgspec.Raw) -> EmbedderSettings:
    """Decode the embedder's section of the configuration from JSON. Raises: ConfigError naming the field."""
    try:
        return msgspec.json.decode(text, type=EmbedderSettings)
    except msgspec.DecodeError as error:
        raise ConfigError(f"embedder: {error}") from None
