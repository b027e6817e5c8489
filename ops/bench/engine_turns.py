"""The worker's engine with several settings, each in a process of its own, which take turns at equal prompts."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from ops.bench.children.line_child import LineChild
from ops.bench.children.worker_child import worker_child
from supervisor.bench.serve_load import CONSOLE
from supervisor.config.server_config import load_config

_MOST_VOCABULARY = 10_000


class EngineTurns:
    """Engines by name, to be closed by `stack`."""

    def __init__(self, stack: contextlib.ExitStack, model: str, workers: Mapping[str, dict[str, Any]]) -> None:
        """model: as for `supervisor start`; workers: for each engine what its section `worker` says.

        Raises: ConfigError, ChildEnded."""
        self._engines: dict[str, LineChild] = {}
        self._vocabulary = _MOST_VOCABULARY
        for name, worker in workers.items():
            child = worker_child(load_config(None, [{"model": model, "gpus": 0, "worker": worker}]))
            self._vocabulary = min(self._vocabulary, child.vocabulary)
            started = LineChild("ops.bench.children.direct_child", child.settings.decode(), environment=child.environment)
            self._engines[name] = stack.enter_context(started)

    def pages(self) -> dict[str, int]:
        """How many pages each engine has."""
        return {name: engine.ask({})["n_pages"] for name, engine in self._engines.items()}

    def compare(self, streams: int, n_in: int, n_out: int, repeats: int) -> dict[str, Any]:
        """One case: tokens/s of all streams after the last prompt, processor time of a token, seconds until then; medians.

        Raises: ChildEnded."""
        question = {"lengths": [(n_in, n_out)] * streams, "temperature": 0.0, "vocabulary": self._vocabulary}
        for engine in self._engines.values():
            engine.ask(question | {"seed": 0, "lengths": [(min(n_in, 128), 4)] * streams})
        found: dict[str, list[dict]] = {name: [] for name in self._engines}
        for seed in range(1, repeats + 1):
            for name, engine in self._engines.items():
                found[name].append(engine.ask(question | {"seed": seed}))
        row: dict[str, Any] = {"streams": streams, "prompt_tokens": n_in}
        for name, times in found.items():
            speeds = [streams * n_out / (one["wall_s"] - one["prefill_s"]) for one in times]
            processor_s = statistics.median(one["processor_s"] for one in times)
            row[name] = {
                "tokens_per_s": round(statistics.median(speeds), 1),
                "processor_ms_per_token": round(processor_s / (streams * n_out) * 1000, 2),
                "prefill_s": round(statistics.median(one["prefill_s"] for one in times), 3),
                "all": [round(speed, 1) for speed in speeds],
            }
        return row


def show_turns(title: str, names: list[str], rows: list[dict[str, Any]]) -> None:
    """A table on standard error, a line for each case and name; ratios are to the first name."""
    table = Table(title=title, title_justify="left")
    for column in ("streams", "prompt", "engine", "tokens/s", "ratio", "processor ms a token", "prompts, s"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for row in rows:
        first = row[names[0]]["tokens_per_s"]
        for name in names:
            one = row[name]
            sizes, ratio = (str(row["streams"]), str(row["prompt_tokens"])), f"{one['tokens_per_s'] / first:.2f}"
            times = f"{one['processor_ms_per_token']:.2f}", f"{one['prefill_s']:.2f}"
            table.add_row(*sizes, name, str(one["tokens_per_s"]), ratio, *times)
    CONSOLE.print(table)
