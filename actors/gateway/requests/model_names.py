"""Whether the model that a client names is the one that is served."""

from __future__ import annotations

from actors.gateway.requests.refusals import Refusal, json_text
from actors.gateway.settings import GatewaySettings

_LATEST = ":latest"
_OTHER_NAME = "; a start with --model-name gives it another name"


def is_same_model(asked: str, served: str) -> bool:
    """True if both name one model. Either may end with `:latest`, the tag that lists of Ollama's API give to every model."""
    return asked == served or asked.removesuffix(_LATEST) == served.removesuffix(_LATEST)


def check_model(asked: str, settings: GatewaySettings) -> None:
    """Return if the model `asked` for is the one that generates text; an empty name asks for any. Raises: Refusal."""
    if asked and not is_same_model(asked, settings.model_name):
        is_embedding = bool(settings.embedding_model) and is_same_model(asked, settings.embedding_model)
        hint = ", which computes embeddings only (/v1/embeddings)" if is_embedding else _OTHER_NAME
        raise _refusal(asked, settings.model_name, hint)


def check_embedding_model(asked: str, settings: GatewaySettings) -> None:
    """Return if the model `asked` for is the one that computes embeddings; an empty name asks for any. Raises: Refusal."""
    if asked and not is_same_model(asked, settings.embedding_model):
        is_generating = is_same_model(asked, settings.model_name)
        raise _refusal(asked, settings.embedding_model, ", which generates text only" if is_generating else "")


def _refusal(asked: str, served: str, hint: str) -> Refusal:
    return Refusal("model_not_found", f"model: expected {json_text(served)}, got {json_text(asked)}{hint}", field="model")
