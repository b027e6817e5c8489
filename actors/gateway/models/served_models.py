"""The models that one gateway serves, by number: 0 is the main one. Each has its text, its limits and its identity.

A request names the number of its model (`RequestSpec.model`), and the replicas of model m have the numbers from m * 1000 on
(`messages/ids.py`), so nothing of two models is ever mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from actors.gateway.models.model_identity import ModelIdentity, served_identity
from actors.gateway.settings import GatewaySettings, OtherModel
from actors.gateway.text.models.ids_only import IdsOnly
from actors.gateway.text.models.served_text import served_text
from actors.gateway.text.models.text_model import TextModel


@dataclass(frozen=True)
class ServedModel:
    """One model. `settings`: those of the gateway as if it served this model alone. `identity`: empty for a model that is not
    served any more, so that no request goes on with it."""

    number: int
    settings: GatewaySettings
    text: TextModel
    identity: ModelIdentity

    @property
    def name(self) -> str:
        """What clients call it."""
        return self.settings.model_name


class ServedModels:
    """All models of one gateway, the main one first."""

    def __init__(self, main: ServedModel, others: Sequence[ServedModel] = ()) -> None:
        self.main, self.all = main, (main, *others)

    def at(self, number: int) -> ServedModel:
        """The model with this number. For one that an earlier start has served: the text of the main one, with no identity."""
        if number < len(self.all):
            return self.all[number]
        return ServedModel(number, self.main.settings, self.main.text, ModelIdentity())

    def accepted(self, number: int, identity: ModelIdentity | None) -> ServedModel:
        """The model with this number, as it answers a request that was accepted for `identity`; None: for this one.

        With another tokenizer its tokens would become another text, so they have none.
        """
        model = self.at(number)
        if identity is None or identity.tokenizer == model.identity.tokenizer:
            return model
        return replace(model, text=IdsOnly(model.text.vocabulary, model.text.eos_tokens))


def load_models(settings: GatewaySettings) -> ServedModels:
    """The models that these settings name. Blocks for up to a second for each. Raises: ConfigError, OSError."""
    others = [_load(number, _as_only_model(settings, other)) for number, other in enumerate(settings.other_models, 1)]
    return ServedModels(_load(0, settings), others)


def _load(number: int, settings: GatewaySettings) -> ServedModel:
    identity = served_identity(settings.model_folder, settings.model_digests)
    exact = identity.with_numerics(settings.numerics, is_exact=settings.deterministic)
    return ServedModel(number, settings, served_text(settings), exact)


def _as_only_model(settings: GatewaySettings, other: OtherModel) -> GatewaySettings:
    """The settings for another model than the main one: what the operator has set for the main model does not hold for it."""
    return msgspec.structs.replace(
        settings,
        model_name=other.name,
        model_folder=other.folder,
        model_digests=other.digests,
        max_length=other.max_length,
        numerics=other.numerics,
        device=other.device,
        chat_template="",
        chat_template_kwargs={},
        default_sampling={},
        reasoning="auto",
        other_models=[],
    )
