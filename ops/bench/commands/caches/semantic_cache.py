"""`semantic-cache`: answers for similar questions: the index, the vectors, what thresholds find, and what a server gains.

python -m ops.bench semantic-cache                                      MiniLM, 1,000 entries, a workload with paraphrases
python -m ops.bench semantic-cache --threshold 0.9 --requests 2000      another threshold
python -m ops.bench semantic-cache --serve smollm2 --threshold 0.9      also at a server of ours, with each cache of answers
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
import msgspec
import numpy as np
from rich.table import Table
from tokenizers import Tokenizer

from actors.cache_directory.similar.neighbours import Neighbours
from ops.bench.machine import describe_machine
from ops.bench.semantic.index_speed import IndexFigures, index_figures
from ops.bench.semantic.replay import ThresholdFigures, replay
from ops.bench.semantic.served import ServedFigures, serve_workload
from ops.bench.semantic.workload import PosedQuestion, made_up_texts, read_questions, repeated_workload
from supervisor.bench.serve_load import CONSOLE, write_json

_THRESHOLDS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)


@click.command(context_settings={"show_default": True})
@click.option("--model", default="all-MiniLM-L6-v2", help="The embedding model, as for `supervisor start`.")
@click.option("--entries", type=click.IntRange(min=20, max=1000), default=1000, help="Of the index.")
@click.option("--threshold", "thresholds", type=float, multiple=True, help="Default: 0.7 to 0.98.")
@click.option("--requests", type=click.IntRange(min=1), default=300, help="Of the workload.")
@click.option("--seed", default=0)
@click.option("--serve", help="Also play the workload at a server of this model, without a cache and with each of them.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=64, help="Of each answer of that server.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str,
    entries: int,
    thresholds: tuple[float, ...],
    requests: int,
    seed: int,
    serve: str | None,
    max_tokens: int,
    out: str | None,
) -> None:
    """Recall and speed of the index, the time of a vector, hits and wrong answers at thresholds."""
    encoder, questions = _Vectors(model), read_questions()
    known, other = made_up_texts(entries)
    known_vectors, asked_vectors = encoder.of(known), encoder.of(other)
    indexes = [
        index_figures("graph", known_vectors, asked_vectors, 16),
        index_figures("one by one", known_vectors, asked_vectors, entries),
    ]
    one = _one_at_a_time(encoder, known_vectors, other[:100])
    texts = sorted({text for words in questions for text in words})
    vectors = dict(zip(texts, encoder.of(texts), strict=True))
    workload = repeated_workload(questions, requests, seed)
    found = [replay(workload, questions, vectors, threshold) for threshold in thresholds or _THRESHOLDS]
    _show_indexes(indexes)
    CONSOLE.print(f"one vector and its look-up among {entries:,}, p50: {one.wall_ms:.1f} ms, {one.processor_ms:.1f} of a core")
    _show_thresholds(found)
    served = _served(serve, model, thresholds or (0.9, 0.95), workload, questions, max_tokens) if serve else []
    write_json(
        {
            "tool": "semantic-cache",
            "machine": describe_machine(),
            "indexes": [msgspec.to_builtins(one) for one in indexes],
            "look_up": msgspec.to_builtins(one),
            "thresholds": [msgspec.to_builtins(one) for one in found],
            "served": [msgspec.to_builtins(one) for one in served],
        },
        out,
    )


class _LookUp(msgspec.Struct, frozen=True):
    """Median times of a vector and its look-up, by the clock and of the processor."""

    wall_ms: float
    processor_ms: float


class _Vectors:
    """The embedding model in this process."""

    def __init__(self, model: str) -> None:
        import torch

        from gpu_workers.embedding.encoder import load_encoder
        from gpu_workers.embedding.model_files import open_model

        torch.set_num_threads(1)  # on a busy machine several threads wait for each other
        folder = open_model(model).folder
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._encoder = load_encoder(folder)

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 [texts, dimensions]."""
        return self._encoder.embed([np.array(one.ids, "<i4") for one in self._tokenizer.encode_batch([*texts])])


def _one_at_a_time(encoder: _Vectors, known: np.ndarray, texts: Sequence[str]) -> _LookUp:
    """One text after the other, as a server with little to do gets them."""
    neighbours = Neighbours(known.shape[1])
    for number, vector in enumerate(known):
        neighbours.add(number, vector)
    times_s = []
    for text in texts:
        began = time.perf_counter(), time.process_time()
        neighbours.nearest(encoder.of([text])[0], 10)
        times_s.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    wall_s, processor_s = np.median(times_s, axis=0).tolist()
    return _LookUp(wall_s * 1e3, processor_s * 1e3)


def _show_indexes(indexes: Sequence[IndexFigures]) -> None:
    table = Table(title="the index", title_justify="left")
    for name in ("index", "entries", "recall@1", "look-up p50", "p99", "adding one"):
        table.add_column(name, justify="left" if name == "index" else "right")
    for one in indexes:
        times = (f"{one.p50_us:,.0f} us", f"{one.p99_us:,.0f} us", f"{one.add_us:,.0f} us")
        table.add_row(one.kind, f"{one.entries:,}", f"{one.recall:.3f}", *times)
    CONSOLE.print(table)


def _show_thresholds(found: Sequence[ThresholdFigures]) -> None:
    table = Table(title=f"{found[0].requests:,} requests with paraphrases", title_justify="left")
    for name in ("threshold", "found", "by equal text", "by a similar question", "wrong, of all", "wrong, of the similar"):
        table.add_column(name, justify="right")
    for one in found:
        parts = (one.hit_rate, one.exact / one.requests, one.similar / one.requests, one.wrong_rate)
        table.add_row(f"{one.threshold:g}", *(f"{part:.1%}" for part in (*parts, one.wrong / max(1, one.similar))))
    CONSOLE.print(table)


def _served(
    served_model: str,
    model: str,
    thresholds: Sequence[float],
    workload: Sequence[PosedQuestion],
    questions: Sequence[Sequence[str]],
    max_tokens: int,
) -> list[ServedFigures]:
    """The workload at a server without a cache, with one for equal requests, and with one for similar questions."""
    flags, found = ("--model", served_model), list[ServedFigures]()
    turns = [("off", 1.0, flags), ("exact", 1.0, flags)]
    turns += [("semantic", threshold, (*flags, "--embedding-model", model)) for threshold in thresholds]
    for cache, threshold, more in turns:
        new = serve_workload(cache, threshold, more, workload, questions, max_tokens)
        found += new
        _show_served(new, found[0])
    return found


def _show_served(found: Sequence[ServedFigures], without: ServedFigures) -> None:
    for one in found:
        wrong = f"{one.wrong / one.requests:.1%} wrong" if one.similar else ""
        CONSOLE.print(
            f"{one.cache:14} {one.run}: {one.per_s:7.1f} requests/s, {one.per_s / without.per_s:5.1f} times; "
            f"{one.processor_s:.1f} s of processor time, {without.processor_s / one.processor_s:.1f} times less; "
            f"found {one.hit_rate:.1%} ({one.similar} of them similar) {wrong} p50 {one.p50_ms:,.1f} ms"
        )
