"""`structured-output`: what masks cost, what forced tokens give, and what 32 constrained streams get, on the packaged model.

Masks and grammars are measured in this process, answers over HTTP on servers of our own, one after the other.
"""

from __future__ import annotations

import json
import random
import statistics
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from actors.gateway.text.grammars import compile_grammar
from gpu_workers.grammar.compiled_grammars import CompiledGrammars
from gpu_workers.grammar.grammar_table import GrammarTable
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from gpu_workers.sampling.masked_logits import mask_logits
from messages.generation.grammar import Grammar, GrammarKind
from messages.generation.sampling import Sampling
from messages.steps import NewSequence, Plan
from messages.wire.arrays import EMPTY_I32, int32s
from ops.bench.children.worker_child import worker_child
from ops.bench.machine import describe_machine
from ops.bench.own_server import ServerDidNotStart, own_server
from supervisor.bench.serve_load import first_model, write_json
from supervisor.config.server_config import load_config

_PERSON: dict[str, Any] = {
    "first_name": {"type": "string", "maxLength": 20},
    "last_name": {"type": "string", "maxLength": 20},
    "date_of_birth": {"type": "string", "format": "date"},
    "email_address": {"type": "string", "maxLength": 30},
    "is_subscribed": {"type": "boolean"},
    "membership_level": {"enum": ["bronze", "silver", "gold"]},
    "age_in_years": {"type": "integer", "minimum": 0, "maximum": 120},
}
SCHEMA = {"type": "object", "properties": _PERSON, "required": list(_PERSON), "additionalProperties": False}
_GRAMMARS: dict[str, dict[str, Any]] = {  # of the wide comparison; answers are as long as without one
    "unconstrained": {},
    "any_text": {"guided_regex": r"(.|\n){2000}"},  # every token is allowed, and its mask is computed
    "json_list": {"guided_json": {"type": "array", "items": SCHEMA, "minItems": 100}},
}
_ROWS, _STEPS, _STREAMS = 32, 20, (1, 8)


@click.command(context_settings={"show_default": True})
@click.option("--answers", default=3, help="JSON answers of each stream, one after the other; 0: leaves them out.")
@click.option("--streams", default=32, help="Streams side by side, without a grammar and with each of two.")
@click.option("--new-tokens", default=64, help="Tokens of each of these streams.")
@click.option("--repeats", default=1, help="Measurements of each kind; the fastest counts.")
@click.option("--model", default="", help="A folder; empty: the packaged model.")
@click.option("--load-format", type=click.Choice(["auto", "random"]), default="auto", help="random: needs no weights.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    answers: int, streams: int, new_tokens: int, repeats: int, model: str, load_format: str, server_args: tuple[str, ...],
    out: str | None,
) -> None:  # fmt: skip
    """Structured output: masks, grammars, JSON with and without forced tokens, many streams without and with grammars."""
    wanted = {"model": model, "worker": {"load_format": load_format}}
    folder = Path(str(worker_child(load_config(None, [wanted])).model_folder))
    server_args = ("--model", model, "--load-format", load_format, *server_args)
    result: dict[str, Any] = {"bench": "structured-output", "machine": describe_machine(), **_in_process(folder)}
    forms = {"with_forced_tokens": [], "without": ["--set", "scheduler.grammar_drafts=false"]}
    try:
        for name, flags in forms.items() if answers else [("", [])]:
            with own_server(["--log-level", "warning", *server_args, *flags]) as server:
                for n in _STREAMS if answers else ():
                    _json_tokens_s(server.url, n, 1)  # compiles
                    speeds = [_json_tokens_s(server.url, n, answers) for _ in range(repeats)]
                    result[f"json_tokens_s_{name}_{n}"] = max(speeds)
                if not flags:
                    result |= _side_by_side(server.url, streams, new_tokens, repeats)
    except ServerDidNotStart as error:
        raise click.ClickException(str(error)) from None
    write_json(result, out)


def _in_process(folder: Path) -> dict[str, float]:
    """Microseconds of a mask for one row (p50 over steps of 32 rows), milliseconds of a grammar: new, and from caches (p99)."""
    wanted = Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(SCHEMA))
    size = int(json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"])
    vocabulary = GrammarVocabulary(folder / "tokenizer.json", size)
    vocabulary.tokenizer()
    compiled = CompiledGrammars(vocabulary)
    took_s: list[float] = []
    for _ in range(1000):
        began_s = time.perf_counter()
        compiled.get(compile_grammar(wanted).text).result().deep_copy()
        took_s.append(time.perf_counter() - began_s)
    masks_s = _mask_times(vocabulary, compile_grammar(wanted).text)
    return {
        "mask_us_a_row_p50": round(statistics.median(masks_s) / _ROWS * 1e6, 1),
        "new_grammar_ms": round(took_s[0] * 1e3, 2),
        "cached_grammar_ms_p99": round(float(np.percentile(took_s[1:], 99)) * 1e3, 3),
    }


def _mask_times(vocabulary: GrammarVocabulary, grammar: str) -> list[float]:
    """Seconds of each step's masks: 32 rows, random answers."""
    table = GrammarTable(vocabulary)
    new = [
        NewSequence(slot=slot, n_tokens=1, n_prompt=1, sampling=Sampling(), grammar=grammar, end_tokens=[0])
        for slot in range(_ROWS)
    ]
    table.enter(
        Plan(
            epoch=0, step=0, n_steps=1, new=new, new_tokens=int32s([0] * _ROWS), page_slots=EMPTY_I32, page_indices=EMPTY_I32,
            page_ids=EMPTY_I32, row_slots=EMPTY_I32, row_starts=EMPTY_I32, row_counts=EMPTY_I32, row_samples=EMPTY_I32,
        )
    )  # fmt: skip
    logits, widths = torch.zeros((_ROWS, vocabulary.size)), np.ones(_ROWS, np.int64)
    rng, slots, took_s = random.Random(0), np.arange(_ROWS), []
    for position in range(1, _STEPS + 1):
        logits.zero_()
        began_s = time.perf_counter()
        step = table.step(slots, widths, np.full(_ROWS, position), EMPTY_I32)
        assert step is not None
        masked = mask_logits(logits, step.masks(), in_place=True)
        masks_s = time.perf_counter() - began_s
        ids = np.array([rng.choice(np.flatnonzero(row == 0).tolist()) for row in masked.numpy()])
        began_s = time.perf_counter()
        step.report(widths, ids)
        step.look_ahead()
        took_s.append(masks_s + time.perf_counter() - began_s)
    return took_s


def _side_by_side(url: str, n_streams: int, new_tokens: int, repeats: int) -> dict[str, float]:
    """Tokens a second of so many streams without a grammar and with each, in turns."""
    speeds: dict[str, list[float]] = {kind: [] for kind in _GRAMMARS}
    for _ in range(repeats + 1):  # the first turn compiles, and does not count
        for kind, grammar in _GRAMMARS.items():
            speeds[kind].append(_text_tokens_s(url, n_streams, new_tokens, grammar))
    return {f"text_tokens_s_{kind}_{n_streams}": max(each[1:]) for kind, each in speeds.items()}


def _ask(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def _tokens_s(url: str, path: str, bodies: list[dict[str, Any]], n_streams: int) -> float:
    """Generated tokens a second over all streams."""
    with ThreadPoolExecutor(n_streams) as threads:
        began_s = time.monotonic()
        answers = list(threads.map(lambda body: _ask(url, path, body), bodies))
        took_s = time.monotonic() - began_s
    return round(sum(answer["usage"]["completion_tokens"] for answer in answers) / took_s, 1)


def _json_tokens_s(url: str, n_streams: int, n_each: int) -> float:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    model = first_model(url)
    bodies = [
        {
            "model": model, "messages": [{"role": "user", "content": f"Invent person {index} as JSON."}],
            "temperature": 0, "max_tokens": 250, "response_format": wanted,
        }
        for index in range(n_streams * n_each)
    ]  # fmt: skip
    return _tokens_s(url, "chat/completions", bodies, n_streams)


def _text_tokens_s(url: str, n_streams: int, new_tokens: int, grammar: dict[str, Any]) -> float:
    model = first_model(url)
    bodies = [
        {
            "model": model, "prompt": f"Story {index}: once upon a time", "temperature": 1, "seed": index,
            "max_tokens": new_tokens, "ignore_eos": True, "speculation": False, **grammar,
        }
        for index in range(n_streams)
    ]  # fmt: skip
    return _tokens_s(url, "completions", bodies, n_streams)
