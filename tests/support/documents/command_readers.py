"""Whether the program of a command would accept it: its own reader of command lines is asked, and nothing is run."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping

import click

from ops.bench.__main__ import main as bench
from supervisor.__main__ import main as supervisor
from supervisor.host_files.folder import host_files
from tests.support.documents.code_blocks import REPO

_ASSIGNMENT = re.compile(r"\w+=\S*")
_CAPTURED = re.compile(r"^\w+=\$\((.*)\)$")
_VALUE = re.compile(r"(?<==)\$\([^()]*\)")
_SIGNS = {"|", "&&", ";", "<", ">", ">>"}
_INSTEAD = {"N": "1", "...": ""}  # what a page leaves open, and a value that can be read
_MISSING = re.compile(r"(?:File|Directory|Path) '([^']+)' does not exist")
_PACKAGES = re.compile(r"[\"']([\w-]+)\[?[^\"']*[\"']")


class NotAccepted(Exception):
    """A command that its program would refuse, or that no reader here knows. The text says why."""


def parts_of(command: str) -> list[list[str]]:
    """The words of each program that a line of shell starts, without redirections, assignments and `$(...)`.

    Raises: NotAccepted for a line that is no shell.
    """
    lexer = shlex.shlex(_VALUE.sub("VALUE", _CAPTURED.sub(r"\1", command)), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise NotAccepted(f"{command}: {error}") from None
    parts, skips = [list[str]()], False
    for word in words:
        if skips or word in _SIGNS:
            skips = word.startswith(("<", ">"))
            parts += [[]] if word in ("|", "&&", ";") else []
        elif parts[-1] or not _ASSIGNMENT.fullmatch(word):
            parts[-1].append(_INSTEAD.get(word, word))
    return [[word for word in part if word] for part in parts if part]


def check(command: str) -> None:
    """Let each program of a command read its words. Raises: NotAccepted."""
    for program, *words in parts_of(command):
        name = _name_of(program)
        if name not in READERS:
            raise NotAccepted(f"{program}: no reader knows this program")
        READERS[name](words)


def knows(command: str) -> bool:
    """Whether each program of a line is known, so that the line is one of shell."""
    try:
        return all(_name_of(program) in READERS for program, *_ in parts_of(command))
    except NotAccepted:
        return False


def _name_of(program: str) -> str:
    """The name of a program, also of one in an environment of its own."""
    return program.rpartition("/bin/")[2] if "/bin/" in program else program


def _read_by(group: click.Group) -> Callable[[list[str]], None]:
    def read(words: list[str]) -> None:
        command: click.Command = group
        context = click.Context(group, info_name=group.name)
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(context, words[0])
            if found is None:
                raise NotAccepted(f"{words[0]}: no such command")
            command, words = found, words[1:]
        try:
            command.make_context(command.name, list(words), resilient_parsing=False)
        except click.exceptions.Exit:
            return  # --help and its like
        except click.UsageError as error:
            if missing := _MISSING.search(error.message):
                return _is_readers_own(missing[1])
            raise NotAccepted(f"{command.name} {shlex.join(words)}: {error.format_message()}") from None

    return read


def _python(words: list[str]) -> None:
    if words[:2] == ["-m", "ops.bench"]:
        _read_by(bench)(words[2:])
    elif words[0] == "-m":
        if importlib.util.find_spec(words[1]) is None:
            raise NotAccepted(f"{words[1]}: no such module")
    elif words[0] == "-c":
        compile(words[1], "<page>", "exec")
    else:
        _is_there(words[0])


def _make(words: list[str]) -> None:
    text = (REPO / "Makefile").read_text(encoding="utf-8")
    for word in words:
        name, _, value = word.partition("=")
        if name == "ARGS":
            READERS["supervisor"](["start", *shlex.split(value)])
        elif not re.search(rf"^{name}\b[^=]*:|^{name} \?=", text, re.MULTILINE):
            raise NotAccepted(f"make {word}: no such target")


def _pip(words: list[str]) -> None:
    """Packages that our own lists name."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = {re.split(r"[\[<>=]", one)[0] for group in [project["dependencies"], *extras.values()] for one in group}
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    named |= set(_PACKAGES.findall(makefile)) | {"WHEEL", project["name"]}
    for word in words[1:]:
        package, _, extra = re.split(r"[<>=]", word)[0].partition("[")
        if not word.startswith("-") and (package not in named or (extra and extra.rstrip("]") not in extras)):
            raise NotAccepted(f"pip install {word}: nothing of ours names it")


def _cp(words: list[str]) -> None:
    for word in words[:-1]:
        _is_there(word)


def _prometheus(words: list[str]) -> None:
    """A configuration is one that `supervisor config files` writes below a folder."""
    for word in words:
        name, _, value = word.partition("=")
        if name == "--config.file" and value.partition("/")[2] not in {file.name for file in host_files()}:
            raise NotAccepted(f"{value}: supervisor config files writes no such file")


def _promtool(words: list[str]) -> None:
    """An expression asks for metrics that there are."""
    metrics = (REPO / "docs" / "metrics.md").read_text(encoding="utf-8")
    for name in re.findall(r"\btardigrade_\w+", words[-1]):
        if f"`{name}`" not in metrics and f"`{name.removesuffix('_total')}`" not in metrics:
            raise NotAccepted(f"{name}: no such metric")


def _in_a_container(words: list[str]) -> None:
    """A command for containers: files of the repository that it names exist, and so does a command of ours at its end."""
    for word in words:
        if word.startswith("ops/"):
            _is_there(word)
    if "supervisor" in words:
        check(shlex.join(words[words.index("supervisor") :]))


def _activate(words: list[str]) -> None:
    if not words[0].endswith("/bin/activate"):
        raise NotAccepted(f"{words[0]}: expected an environment of Python")


def _is_readers_own(path: str) -> None:
    """A file that a reader of the page makes, not one of the repository. Raises: NotAccepted."""
    if (REPO / path.partition("/")[0]).is_dir() and not path.startswith("/"):
        raise NotAccepted(f"{path}: no such file")


def _is_there(path: str) -> None:
    if not (REPO / path).exists():
        raise NotAccepted(f"{path}: no such file")


def _any(words: list[str]) -> None:
    """Anything: a shell's own word, or a foreign program, which the list of what is not run names."""


def _after_priority(words: list[str]) -> None:
    check(shlex.join(words[2:]))


READERS: Mapping[str, Callable[[list[str]], None]] = {
    **dict.fromkeys(("supervisor", "tardigrade"), _read_by(supervisor)),
    **dict.fromkeys(("python", "python3"), _python),
    **dict.fromkeys(("docker", "kubectl", "helm", "terraform"), _in_a_container),
    **dict.fromkeys(("curl", "echo", "export", "mkdir", "openssl", "touch"), _any),
    **dict.fromkeys(("aiperf", "guidellm", "buildah", "debootstrap", "systemctl", "systemd-sysusers"), _any),
    "make": _make,
    "prometheus": _prometheus,
    "promtool": _promtool,
    "pip": _pip,
    "cp": _cp,
    "chrt": _after_priority,
    ".": _activate,
}
