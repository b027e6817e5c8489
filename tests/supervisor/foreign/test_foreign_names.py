"""What the command line does not know is answered with what there is, above all what users of other servers type."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from supervisor.__main__ import main
from supervisor.config.server_config import ServerConfig, described
from supervisor.foreign.foreign_names import COMMANDS, FLAGS
from supervisor.foreign.load_tools import LOAD_FLAGS
from supervisor.foreign.variables import VARIABLES


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("serve org/name", "serve: unknown command; here it is supervisor start --model MODEL"),
        ("list", "list: unknown command; here it is supervisor models"),
        ("ls", "ls: unknown command; here it is supervisor models"),
        ("chat smollm2", "smollm2: expected no more arguments; did you mean --model smollm2?"),
        ("chat --top-p 0.9", "--top-p: unknown; here it is -o top_p=VALUE"),
        ("chat --seed 1", "--seed: unknown; here it is -o seed=VALUE"),
        ("run smollm2 What is it?", "is: expected no more arguments; a prompt of several words needs quotes"),
        ("run", "Missing argument 'MODEL'."),
        ("completion", "Missing argument '{bash|zsh|fish}'. Choose from:"),
        ("run --model smollm2 Hello", "--model: unknown; here it is the first argument, MODEL"),
        ("start --tensor-parallel-size 2", "--tensor-parallel-size: unknown; here it is --tp"),
        ("start --gpu-memory-utilization=0.8", "--gpu-memory-utilization: unknown; here it is --set worker.memory_share=0.9"),
        ("start --daemon", "--daemon: unknown; a server stays in the foreground; systemd or a container keeps it in"),
        ("start --debug", "--debug: unknown; here it is --log-level debug"),
        ("start --bind 0.0.0.0", "--bind: unknown; here it is --host"),
        ("start --cache-type-k q8_0", "--cache-type-k: unknown; here it is --kv-dtype int8 for q8_0, int4 for q4_0"),
        ("start --num-speculative-tokens 4", "--num-speculative-tokens: unknown; here it is --speculation; drafts come"),
        ("start --rope-scaling yarn", "--rope-scaling: unknown; this is read from config.json in the model's folder"),
        ("chat --temp 0.2", "--temp: unknown; here it is -o temperature=VALUE"),
        ("run smollm2 -p Hello", "-p: unknown; the prompt is the second argument of `supervisor run`"),
        ("chat --base-url http://127.0.0.1:1", "--base-url: unknown; here it is --url"),
        ("start -tp 2", "-tp: unknown; here it is --tp"),
        ("start -m org/name", "-m: unknown; here it is --model"),
        ("start --num-ctx=4096", "--num-ctx: unknown; here it is --max-length"),
        ("start --chat-template a.jinja", "--chat-template: unknown; here it is --set gateway.chat_template=FILE"),
        ("start --tool-call-parser hermes", "--tool-call-parser: unknown; this is known from the model's chat template"),
        ("start --cpu-offload-gb 4", "--cpu-offload-gb: unknown; a model is never split between GPUs and cores"),
        ("start --swap-space 4", "--swap-space: unknown; here it is --host-cache BYTES"),
        ("start --ssl-certfile server.pem", "--ssl-certfile: unknown; here it is --tls-cert"),
        ("start --workers 4", "--workers: unknown; here it is --gateways for processes that accept requests"),
        ("stop smollm2", "smollm2: expected no more arguments; a server has one model, and stop ends the server"),
        ("run smollm2 hi --format json", '--format: unknown; here it is -o \'response_format={"type": "json_object"}\''),
        ("run smollm2 hi --keepalive 5m", "--keepalive: unknown; a server has one model, which stays loaded"),
        ("cp a b", "cp: unknown command; here it is supervisor start --model MODEL --model-name NAME"),
        ("show smollm2 --modelfile", "--modelfile: unknown; here it is supervisor show MODEL"),
        ("logs --tail 5", "--tail: unknown; here it is --lines"),
        ("start --revision main", "--revision: unknown; the newest revision is fetched"),
        (
            "start --otlp-traces-endpoint http://a:4318",
            "--otlp-traces-endpoint: unknown; here it is --set observability.traces",
        ),
        ("start --api-key secret", "--api-key: unknown; here it is --api-keys; `supervisor keys add` makes a key"),
        ("check-config --served-model-name x", "--served-model-name: unknown; here it is --model-name"),
        ("start org/name", "org/name: expected no more arguments; did you mean --model org/name?"),
        ("start server.toml", "server.toml: expected no more arguments; did you mean --config server.toml?"),
        ("status 8001", "8001: expected no more arguments; did you mean --port 8001?"),
        ("restart --rolling now", "now: expected no more arguments"),
        ("start --gpu 1", "No such option '--gpu'. (Did you mean one of: '--gpus'"),
        ("status --port 99999", "Invalid value for '--port': 99999 is not in the range 0<=x<=65535."),
        ("drain --deadline -1", "Invalid value for '--deadline': -1.0 is not in the range 0.0<=x<=86400.0."),
        ("drill --port -3", "Invalid value for '--port': -3 is not in the range 0<=x<=65535."),
        ("bench --num-prompts 10", "--num-prompts: unknown; here it is --requests"),
        ("bench --random-input-len 10", "--random-input-len: unknown; here it is --input"),
        ("bench -c 4", "-c: unknown; here it is --concurrency"),
        ("bench --base-url http://127.0.0.1:1/v1", "--base-url: unknown; the address is the first argument, URL"),
        ("drill --kill worker", "--kill: unknown; here it is --fault kill:TARGET"),
        ("keys create --tenant a", "create: unknown command; here it is supervisor keys add --tenant NAME"),
        ("tenants add a", "add: unknown command; here it is supervisor tenants set NAME"),
        ("cache clear", "clear: unknown command; here it is supervisor cache reset"),
        ("config check", "check: unknown command; here it is supervisor check-config"),
        ("restart worker/0.0", "worker/0.0: expected no more arguments; this is about a whole server"),
        ("kill worker/0.0", "kill: unknown command; here it is supervisor stop for the server; supervisor drill kills"),
        ("logs -n x", "Invalid value for '--lines' / '-n': 'x' is not a valid integer."),
        ("run smollm2 hi --temperature hot", "Invalid value for '--temperature': 'hot' is not a valid float."),
        ("strat", "No such command 'strat'. (Did you mean one of: "),
    ],
)
def test_a_foreign_word_is_answered_with_ours(typed: str, said: str) -> None:
    answer = CliRunner().invoke(main, typed.split())
    assert answer.exit_code == 2
    assert f"Error: {said}" in answer.output


def test_a_benchmark_as_vllm_calls_it_is_told_what_this_one_takes() -> None:
    answer = CliRunner().invoke(main, ["bench", "serve"])
    assert (answer.exit_code, "url: expected an address or nothing, got serve" in answer.output) == (2, True)


def test_the_table_names_only_what_there_is() -> None:
    ours = [main, *main.commands.values()]
    ours += [inner for group in main.commands.values() if isinstance(group, click.Group) for inner in group.commands.values()]
    flags = {"--help", *(name for command in ours for option in command.params for name in option.opts)}
    sections = {name: table for name, table in described(ServerConfig()).items() if isinstance(table, dict)}
    for text in (*COMMANDS.values(), *FLAGS.values(), *LOAD_FLAGS.values(), *VARIABLES.values()):
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= flags, text
        assert all(key in sections[section] for section, key in re.findall(r"--set \'?(\w+)\.(\w+)=", text)), text
        assert set(re.findall(r"supervisor ([a-z-]+)", text)) <= main.commands.keys(), text


def test_what_is_said_of_a_load_tool_is_a_flag_of_ours() -> None:
    bench = main.commands["bench"]
    flags = {name for option in bench.params for name in option.opts}
    assert {text for text in LOAD_FLAGS.values() if text.startswith("--") and " " not in text} <= flags
    assert not LOAD_FLAGS.keys() & flags


def test_the_table_says_nothing_about_our_own_names() -> None:
    start = main.commands["start"]
    assert isinstance(start, click.Command)
    assert not COMMANDS.keys() & main.commands.keys()
    assert not FLAGS.keys() & {name for option in start.params for name in option.opts}
