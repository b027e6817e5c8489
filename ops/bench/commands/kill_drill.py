"""`kill-drill`: a server of our own, HTTP and ZeroMQ clients, faults of every actor in every phase, every token checked."""

from __future__ import annotations

import asyncio
import random

import click
import httpx
from rich.table import Table

from gpu_workers.hash_chain import hash_chain_tokens
from messages.errors import ConfigError
from ops.bench.campaign.campaign import CampaignPlan, CampaignResult, run_campaign
from ops.bench.campaign.deck import Harm, coverage
from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from ops.bench.serve_load import CONSOLE, write_json
from supervisor.drill.figures import as_json, rows_of, verdict
from supervisor.drill.report import print_report
from supervisor.drill.run import reference_of
from supervisor.drill.streams import Stream, StreamOptions, find_model, prompts_of
from supervisor.operator.calls import NoServer

_UNBOUNDED = ("supervisor.actor_restarts=1000000", "supervisor.gang_restarts=1000000", "supervisor.restart_attempts=1000")
_HASH_CHAIN_VOCABULARY = 32_768


class Oracle:
    """New streams for each episode, and the right answers to their prompts."""

    def __init__(self, options: StreamOptions, n_streams: int, sampled_share: float, seed: int) -> None:
        self._options, self._n_streams, self._sampled_share, self._seed = options, n_streams, sampled_share, seed
        self.right: dict[str, str] = {}
        self._is_chain = True

    async def learn(self) -> None:
        """Learn the answers of a real model: what it gives before the first fault. Raises: ConfigError."""
        self._is_chain = False
        async with httpx.AsyncClient(timeout=self._options.deadline_s) as client:
            self.right, n_unsteady = await reference_of(client, self._options, self._prompts(0))
        if n_unsteady:
            raise ConfigError(f"model: expected the same answers twice, got {n_unsteady} that differ")

    def streams(self, number: int) -> list[Stream]:
        """Those of one episode. A real model gets the same prompts again."""
        if not self._is_chain:
            return [Stream(prompt) for prompt in self._prompts(0)]
        chance = random.Random(f"{self._seed} {number}")
        streams = [
            Stream(prompt, seed=chance.getrandbits(40) + 1 if chance.random() < self._sampled_share else 0)
            for prompt in self._prompts(number)
        ]
        self.right.update((stream.prompt, self._formula(stream)) for stream in streams)
        return streams

    def _prompts(self, number: int) -> list[str]:
        return prompts_of(self._n_streams, self._options.prompt_words, self._seed + number)

    def _formula(self, stream: Stream) -> str:
        ids = list(stream.prompt.encode())
        tokens = hash_chain_tokens(ids, self._options.max_tokens, stream.seed, _HASH_CHAIN_VOCABULARY)
        return "".join(f"{token} " for token in tokens)


@click.command(context_settings={"show_default": True})
@click.option("--model", default="hash-chain", help="As for `supervisor start`; smollm2 is the packaged model.")
@click.option("--step-ms", default=5.0, help="Artificial time of one step of the hash chain.")
@click.option("--streams", default=18, help="Streams of an episode: a third each over ZeroMQ, HTTP with a key, plain HTTP.")
@click.option("--prompt-words", default=200)
@click.option("--output-tokens", default=300)
@click.option("--faults", "n_faults", default=60, help="Faults before the drain.")
@click.option("--target", "targets", multiple=True, help="A role (worker, gateway, supervisor, ...); repeatable. Default: all.")
@click.option("--harm", "harms", multiple=True, type=click.Choice([h.value for h in Harm]), help="Repeatable. Default: all.")
@click.option("--drain/--no-drain", "drains", default=True, help="End with a drain under faults.")
@click.option("--sampled-share", default=0.5, help="Streams of the hash chain with temperature 1 and a seed, 0 to 1.")
@click.option("--deadline", "deadline_s", default=120.0, help="Seconds for one stream.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, step_ms: float, streams: int, prompt_words: int, output_tokens: int, n_faults: int, targets: tuple[str, ...],
    harms: tuple[str, ...], drains: bool, sampled_share: float, deadline_s: float, server_args: tuple[str, ...], seed: int,
    out: str | None,
) -> None:  # fmt: skip
    """Harm processes of a server under load. Exit status 1 when a stream was lost or a token was wrong."""
    is_chain = model == "hash-chain"
    sets = [*_UNBOUNDED, *([f"worker.hash_chain_step_s={step_ms / 1e3}"] if is_chain else [])]
    arguments = ["--model", model, "--gpus", "0", "--log-level", "warning"]
    arguments += [part for one in sets for part in ("--set", one)] + list(server_args)

    async def drill(server: OwnServer) -> tuple[CampaignResult, Oracle]:
        async with httpx.AsyncClient() as client:
            name = await find_model(client, server.url)
        options = StreamOptions(server.url, name, prompt_words, output_tokens, deadline_s, ignores_end=True, api_key="")
        oracle = Oracle(options, streams, sampled_share, seed)
        if not is_chain:
            await oracle.learn()
        chosen = tuple(Harm(one) for one in harms) or tuple(Harm)
        plan = CampaignPlan(options, server.run_dir, n_faults, oracle.streams, seed, targets, chosen, drains)
        return await run_campaign(plan, lambda line: CONSOLE.print(line, highlight=False)), oracle

    try:
        with own_server(arguments) as server:
            result, oracle = asyncio.run(drill(server))
    except (ConfigError, ServerDidNotStart, NoServer, TimeoutError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    figures = _report(result, oracle, model)
    facts = {"model": model, "server_args": server_args, "prompt_words": prompt_words, "output_tokens": output_tokens}
    write_json({"bench": "kill-drill", "machine": describe_machine(), **facts, **figures}, out)
    raise SystemExit(0 if figures["right"] == figures["streams"] else 1)


def _report(result: CampaignResult, oracle: Oracle, model: str) -> dict[str, object]:
    """Print what was found; returns it for the JSON."""
    verdicts = [verdict(stream, oracle.right) for stream in result.streams]
    rows = rows_of(result.rounds, oracle.right)
    print_report(rows, f"kill-drill of {model}", CONSOLE)
    covered = coverage(result.cards)
    table = Table(title="faults: kill, pause, freeze", title_justify="left")
    phases = list(dict.fromkeys(phase for by_phase in covered.values() for phase in by_phase))
    for column in ("actor", *phases):
        table.add_column(column)
    for role, by_phase in covered.items():
        cells = [" ".join(str(by_phase.get(phase, {}).get(harm.value, 0)) for harm in Harm) for phase in phases]
        table.add_row(role, *cells)
    CONSOLE.print(table)
    totals = {name: verdicts.count(name) for name in ("right", "wrong", "lost")}
    CONSOLE.print(f"{len(result.cards)} faults, {len(verdicts)} streams: {totals}", highlight=False)
    errors = sorted({stream.error for stream in result.streams if stream.error})[:8]
    for error in errors:
        CONSOLE.print(f"[red]{error}[/red]", highlight=False)
    return {
        **as_json(rows, {"faults": len(result.cards), "streams": len(verdicts), **totals}),
        "covered": covered,
        "errors": errors,
    }
