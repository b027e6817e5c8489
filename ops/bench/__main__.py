"""The command line of the load tools: `python -m ops.bench COMMAND`. Tables go to standard error, JSON to standard output."""

from __future__ import annotations

import importlib
import signal
import sys

import click

_COMMANDS = {
    "serve-load": "measure any running server that speaks the OpenAI API",
    "side-by-side": "this server and others on one machine, with the same client and prompts, by turns",
    "cpu-compare": "this server and plain transformers on CPU cores, side by side in one run",
    "overhead": "what the actors cost over calling the worker's engine directly",
    "survival-cost": "what surviving costs while nothing fails: the server with all of it, and with each part turned off",
    "kv-dtypes": "the worker's engine with plain and with compressed keys and values, in turns",
    "quantization": "the worker's engine on CPU cores with plain and with quantised weights, in turns",
    "kill-drill": "kill processes of a server under load and check every token",
    "everything": "kill all processes of a server at once, start it again, and follow what it had accepted",
    "day": "many clients of tenants for hours, and a death every half minute: availability, errors, repair times",
    "failover": "from the death of a process of a replica to the next tokens of its streams, on a real server",
    "leak-watch": "many requests and many kills; whatever lives on may not grow",
    "balance": "how evenly replicas share the work, by strategy, in virtual time",
    "cache": "eviction policies of the prefix cache on generated and recorded traces, beside vLLM's rule",
    "returning": "first tokens of conversations that return: computed and from the host tier, in turns",
    "lent-pages": "first tokens of prompts that another replica has: computed, and with its pages, in turns",
    "answer-hits": "answers that are kept: how long one takes, and what the cache costs a request that it does not have",
    "directory": "the cache directory: how far it is behind and how fast it answers, beside a bare round trip",
    "pages": "pages against contiguous memory on mixed lengths, and the time that the page ledger takes of a step",
    "semantic-cache": "answers for similar questions: the index, and hits and wrong answers at thresholds",
    "cliffs": "a very long prompt, long prompts beside short requests, a burst: gaps and first tokens",
    "policies": "scheduling policies on generated traces: shares, deadlines, first tokens, the cost of planning",
    "served-policies": "shares of tenants and deadlines in real servers of several replicas and gateways, by policy",
    "served-balance": "how evenly the replicas of a real server share the work, by strategy",
    "plan-cost": "what planning takes of the processor with a full batch and a long queue, by policy, in turns",
    "urgent": "first tokens of urgent requests beside many others and alone, on a real server",
    "long-prefills": "whether the checks of health take a replica that computes long prompts for a broken one, in virtual time",
    "tenants": "what one tenant can learn from times of another, and what a flood of one costs another",
    "limit-cost": "what API keys and limits of tenants cost a request, in turns",
    "scrape": "how long a scrape of /metrics takes with many tenants, with and without vLLM's names, in turns",
    "trace-cost": "what traces of requests cost, and a collector that is away, in turns",
    "watch-cost": "what metrics, access log and the open page cost whole servers, in turns",
    "gpu-batch": "the batch workload of the peers, on the engine itself and through the server",
    "structured-output": "masks, grammars, JSON with and without forced tokens, constrained streams",
    "plots": "pictures of the documents from measured results, which are JSON files",
    "self-test": "how many chunks a second this load tool can read",
}
_ROOMS = {
    **dict.fromkeys(
        ("answer-hits", "cache", "directory", "kv-dtypes", "lent-pages", "pages", "returning", "semantic-cache"),
        "commands.caches",
    ),
    **dict.fromkeys(("long-prefills", "plan-cost", "served-balance", "served-policies", "urgent"), "commands.scheduling"),
    "plots": "plots",
    **dict.fromkeys(("day", "everything", "failover", "kill-drill", "leak-watch", "survival-cost"), "commands.survival"),
    "watch-cost": "commands.watching",
}
_FILES = {"pages": "page_capacity", "plots": "command"}  # of commands that are not called as their file


class _LazyGroup(click.Group):
    """Imports a command's module when it is called: a load test of a foreign server needs none of ours."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        file = _FILES.get(cmd_name, cmd_name.replace("-", "_"))
        module = importlib.import_module(f"ops.bench.{_ROOMS.get(cmd_name, 'commands')}.{file}")
        return module.command


@click.group(cls=_LazyGroup)
@click.pass_context
def main(context: click.Context) -> None:
    """Load tools."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that servers are ended in order
    context.call_on_close(lambda: signal.signal(signal.SIGTERM, before))  # tests run commands in their own process


if __name__ == "__main__":
    main(prog_name="python -m ops.bench")
