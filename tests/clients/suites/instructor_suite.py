"""instructor in its modes TOOLS, JSON and JSON_SCHEMA, whole and streamed, against a running server."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Any

import instructor
import openai
import pytest
from pydantic import BaseModel, Field

URL, MODEL = os.environ["CLIENT_URL"] + "/v1", os.environ["CLIENT_MODEL"]
MODES = (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA)
ASK: list[Any] = [{"role": "user", "content": "Paris is a city in France with 2 million people."}]
TERMS: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 128, "max_retries": 0}


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class City(BaseModel):
    """A city."""

    size: Size
    is_capital: bool
    district: int = Field(ge=0, le=99)


class Place(BaseModel):
    is_capital: bool
    district: int


class TwoCities(BaseModel):
    first: City
    second: City


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
@pytest.mark.parametrize("kind", [City, TwoCities])
def test_an_answer_is_an_object_of_the_model(mode: instructor.Mode, kind: type[BaseModel]) -> None:
    with openai.OpenAI(base_url=URL, api_key="none") as client:
        assert isinstance(instructor.from_openai(client, mode=mode).create(response_model=kind, messages=ASK, **TERMS), kind)


def test_json_mode_gets_an_object() -> None:
    """The mode sends no schema to enforce, so which keys the object has is the model's choice."""

    class Anything(BaseModel, extra="allow"):
        pass

    with openai.OpenAI(base_url=URL, api_key="none") as client:
        caller = instructor.from_openai(client, mode=instructor.Mode.JSON)
        bias = {"extra_body": {"logit_bias": {_token_of(client, '"}'): 20.0, _token_of(client, '"'): 12.0}}}
        assert isinstance(caller.create(response_model=Anything, messages=ASK, **TERMS, **bias), Anything)


@pytest.mark.parametrize("mode", MODES[::2])
async def test_a_stream_fills_the_object_bit_by_bit(mode: instructor.Mode) -> None:
    async with openai.AsyncOpenAI(base_url=URL, api_key="none") as client:
        caller = instructor.from_openai(client, mode=mode)
        parts = [part async for part in caller.create_partial(response_model=Place, messages=ASK, **TERMS)]
    assert Place.model_validate(parts[-1].model_dump())


def _token_of(client: openai.OpenAI, text: str) -> str:
    answer = client.post("/../tokenize", cast_to=dict[str, Any], body={"prompt": text})
    return str(answer["tokens"][0])
