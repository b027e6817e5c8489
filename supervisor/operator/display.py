"""The terminal output of a start: progress bars while it loads, then where the server listens, and commands to copy.

Bars are shown on a terminal only. They and the text go to standard error, between the lines of the log. With a log of JSON
lines standard error carries nothing else: there are no bars, and the text becomes log events.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import structlog

from actors.gateway.settings import GatewaySettings
from messages.run_dir import DEFAULT_PORT, run_dir_of, zeromq_endpoint
from supervisor.directories.server import Server
from supervisor.operator.server_search import listens_everywhere, on_this_machine

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_JSON, _KEY = "-H 'Content-Type: application/json'", '-H "Authorization: Bearer $KEY"'
_NEARLY = 0.999  # of a phase that has ended: the clock of a bar that is full stops


class Display:
    """Shows the progress of a start, and how to use the server.

    `url`: the address for HTTP clients; `zeromq`: the endpoint for ZeroMQ clients. `takes_text`: False for a model without a
    tokenizer, whose clients send token ids. `takes_chat`: False for one without a chat template. `is_json`: the log is JSON
    lines. `is_live`: True if standard error is a terminal; None: find out.
    """

    def __init__(
        self,
        model_name: str,
        url: str,
        zeromq: str,
        *,
        takes_text: bool = True,
        takes_chat: bool = True,
        keys_dir: str = "",
        tls_flags: str = "",
        is_json: bool = False,
        is_live: bool | None = None,
    ) -> None:
        self._model_name, self._url, self._zeromq = model_name, url, zeromq
        self._takes_text, self._takes_chat, self._is_json = takes_text, takes_chat, is_json
        self._keys_dir, self._tls_flags = keys_dir, tls_flags
        self._zeromq_tcp = ""  # the second endpoint, if there is one
        self._is_live = not is_json and (sys.stderr.isatty() if is_live is None else is_live)
        self._progress: Progress | None = None
        self._task_by_name: dict[str, TaskID] = {}
        self._is_starting = True

    @classmethod
    def of(cls, server: Server) -> Display:
        """The output for this server, on the present standard error."""
        zeromq, is_json = zeromq_endpoint(server.run_dir.path, 0), server.log_format == "json"
        inputs = {"takes_text": server.takes_text, "takes_chat": server.takes_chat, "keys_dir": server.keys_dir}
        display = cls(server.model_name, server.url, zeromq, **inputs, tls_flags=server.tls_flags, is_json=is_json)
        display._zeromq_tcp = server.zeromq_tcp
        return display

    def loading(self, name: str, phase: str, fraction: float) -> None:
        """Show how far the start of a child has come (`fraction` of `phase`, 0 to 1). Does nothing once the server has served,
        because the log reports restarts."""
        self._show(name, phase, min(fraction, _NEARLY))

    def ready(self, name: str, took_s: float) -> None:
        """Show that a child can serve."""
        self._show(name, f"ready in {took_s:.1f} s", 1.0)

    def _show(self, name: str, phase: str, completed: float) -> None:
        if not (self._is_starting and self._is_live):
            return
        if self._progress is None:
            self._progress = _new_progress()
            self._progress.start()
        if name not in self._task_by_name:
            self._task_by_name[name] = self._progress.add_task(name, total=1.0, phase=phase)
        self._progress.update(self._task_by_name[name], completed=completed, phase=phase)

    def serving(self, after_s: float) -> None:
        """All children are ready for the first time: print how to use the server."""
        self.close()
        if self._is_json:
            log, after_s = structlog.get_logger(), round(after_s, 3)
            log.info("serving", model=self._model_name, url=self._url, zeromq=self._zeromq, after_s=after_s)
        else:
            inputs = self._takes_text, self._takes_chat, self._keys_dir, self._tls_flags, self._zeromq_tcp
            self.say(serving_text(self._model_name, self._url, self._zeromq, after_s, *inputs))

    def failed(self, reason: str) -> None:
        """Print why the server gives up. `reason` is one line."""
        self.close()
        self.say(f"supervisor: {reason}")

    def say(self, text: str) -> None:
        """Print `text`, or log it where the log is JSON lines. Never raises: a full disk or a closed pipe must not end the
        server."""
        if self._is_json:
            structlog.get_logger().warning(text)
            return
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bars."""
        self._is_starting = False
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class _ServerToAsk(NamedTuple):
    """The server that the commands ask. `has_keys`: they show the API key in the variable KEY of the shell. `tls_flags`: of
    curl."""

    model_name: str
    url: str
    zeromq: str
    has_keys: bool
    tls_flags: str = ""

    @property
    def client(self) -> str:
        """The client library's client, as an expression of Python between double quotes of a shell."""
        key = ", api_key='$KEY'" if self.has_keys else ""
        return f"Client('{self.zeromq}'{key})"

    def curl(self, path: str, body: dict[str, object]) -> list[str]:
        """The lines of a curl command."""
        header = f"{_JSON} {_KEY}" if self.has_keys else _JSON
        tls = f"{self.tls_flags} " if self.tls_flags else ""
        return [f"    curl -N {tls}{self.url}{path} {header} \\", f"      -d {shlex.quote(json.dumps(body))}"]


def serving_text(
    model_name: str,
    url: str,
    zeromq: str,
    after_s: float,
    takes_text: bool = True,
    takes_chat: bool = True,
    keys_dir: str = "",
    tls_flags: str = "",
    zeromq_tcp: str = "",
) -> str:
    """Where the server listens, with commands to copy. They run in any shell in this directory. `takes_text`: False for a
    model that is asked with token ids. `takes_chat`: False for one that takes plain prompts only. `keys_dir`: where the file of
    API keys is; "": clients need none. `tls_flags`: of curl for HTTPS; "": plain HTTP. `zeromq_tcp`: a second endpoint, or
    ""."""
    supervisor, flag = supervisor_command(), _server_flag(url, zeromq)
    asked = _ServerToAsk(model_name, on_this_machine(url), zeromq, bool(keys_dir), tls_flags)
    call, client = _text_calls(asked, takes_chat) if takes_text else _token_calls(asked)
    key = [f"    KEY=$({supervisor} keys add --tenant me --state-dir {shlex.quote(keys_dir)})"] if keys_dir else []
    return "\n".join(
        [
            "",
            f"Tardigrade serves {model_name} after {after_s:.1f} s.",
            *_addresses(url, zeromq, zeromq_tcp, f"{supervisor} keys zeromq{flag}"),
            "",
            "  Try it:" if takes_text else "  Try it (this model has no tokenizer, so prompts are token ids):",
            *key,
            *call,
            "",
            f'    {_shell_path(Path(sys.executable))} -c "from messages.client import Client; {client}"',
            "",
            *_commands(supervisor, flag, takes_text and takes_chat, bool(keys_dir)),
            "",
        ]
    )


def _commands(supervisor: str, flag: str, takes_chat: bool, has_keys: bool) -> list[str]:
    """The commands for this server, each with what it does."""
    lines = {
        f"{supervisor} top{flag}": "watch it and its processes",
        f"{supervisor} status{flag}": "show its processes",
        f"{supervisor} stop{flag}": "finish the requests in progress, then end (or Ctrl-C here)",
    }
    if takes_chat:
        key = ' --api-key "$KEY"' if has_keys else ""
        lines = {f"{supervisor} chat{flag}{key}": "talk to the model, in another terminal", **lines}
    width = max(map(len, lines))
    return [f"  {command:<{width}}    {text}" for command, text in lines.items()]


def _addresses(url: str, zeromq: str, zeromq_tcp: str, key_command: str) -> list[str]:
    """The addresses for people and clients, each with what it is for. `key_command`: prints the key of ZeroMQ over TCP.

    A server that listens everywhere is shown by an address that programs on this machine can use, also in a certificate:
    nobody connects to 0.0.0.0.
    """
    listens, url = url, on_this_machine(url)
    apis = (
        (f"{url}/", "in a browser: the server, live"),
        (f"{url}/docs", "in a browser: its HTTP API"),
        (f"{url}/v1", "for clients of OpenAI"),
        (url, "for clients of Anthropic and Ollama"),
    )
    lines = [f"{address:<{len(url) + 5}}    {api}" for address, api in apis]
    if listens_everywhere(listens):
        lines.append(f"{'':<{len(url) + 5}}    it listens on {listens}: other machines take a name or address of this one")
    tcp = [f"          {zeromq_tcp}    {key_command} prints its public key, if it is encrypted"] if zeromq_tcp else []
    return [*(f"  {'' if index else 'HTTP':<6}  {line}" for index, line in enumerate(lines)), f"  ZeroMQ  {zeromq}", *tcp]


def _text_calls(asked: _ServerToAsk, takes_chat: bool) -> tuple[list[str], str]:
    """A curl command that streams an answer to a question, or the rest of a prompt, and the same sort of call in Python."""
    prompt = "The capital of France is"
    question = (
        {"messages": [{"role": "user", "content": "What is the capital of France?"}]} if takes_chat else {"prompt": prompt}
    )
    options = {"max_tokens": 64, "temperature": 0.2}  # at the API's default of 1.0 a small model soon writes nonsense
    body = {"model": asked.model_name, **question, **options, "stream": True}
    client = f"print({asked.client}.generate('{prompt}', max_tokens=32, temperature=0.2).text)"
    return asked.curl(f"/v1/{'chat/' if takes_chat else ''}completions", body), client


def _token_calls(asked: _ServerToAsk) -> tuple[list[str], str]:
    """The same with token ids instead of text."""
    body = {"model": asked.model_name, "tokens": [1, 2, 3], "max_tokens": 16}
    return asked.curl("/v1/generate", body), f"print({asked.client}.generate([1, 2, 3], max_tokens=16).tokens)"


def flags_for_tls(settings: GatewaySettings) -> str:
    """How curl trusts a server with these settings, and shows a certificate if it must; "" for plain HTTP."""
    if not settings.tls_cert:
        return ""
    shown = " --cert CLIENT.pem --key CLIENT.key" if settings.tls_client_ca else ""
    return f"--cacert {shlex.quote(str(Path(settings.tls_cert).absolute()))}{shown}"


def supervisor_command() -> str:
    """How a shell in this directory runs the `supervisor` of this Python: by its name where PATH leads to it."""
    script = Path(sys.executable).with_name("supervisor")
    if not script.is_file():
        return f"{_shell_path(Path(sys.executable))} -m supervisor"
    on_path = shutil.which("supervisor")
    return "supervisor" if on_path and os.path.samefile(on_path, script) else _shell_path(script)


def _shell_path(path: Path) -> str:
    """A path for a shell, relative to the current directory if it lies below it."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here)) if path.is_relative_to(here) else str(path))


def _server_flag(url: str, zeromq: str) -> str:
    """The flag by which `supervisor status` and its like find this server; empty for the default port."""
    port = urlsplit(url).port or 0
    if zeromq != zeromq_endpoint(run_dir_of(port), 0):
        return f" --run-dir {Path(zeromq.removeprefix('ipc://')).parent}"
    return "" if port == DEFAULT_PORT else f" --port {port}"


def _new_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<20}"), BarColumn(30), TextColumn("{task.fields[phase]}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
