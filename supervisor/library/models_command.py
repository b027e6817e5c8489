"""The command lines of `supervisor models` and `supervisor show`. Heavy modules are imported when they run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import fail

if TYPE_CHECKING:
    from supervisor.library.stored_facts import StoredFacts
    from supervisor.library.stored_model import StoredModel

_HEADS = ("model", "size", "type", "parameters", "context", "weights", "here")
_NO_MODELS = "no model is here; supervisor pull smollm2 fetches a small one"


@click.command(cls=CommandWithHints, short_help="List the models on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def models(as_json: bool) -> None:
    """List the models on this machine: from packages, and in the cache of the Hugging Face hub.

    Each with its size on disk, its type and parameters, its context in tokens, the type of its weights, and how a start without
    other flags would run it here, or why it cannot. GGUF files count what they were converted to.

    \b
    Exit status:
      0  always
    """
    from supervisor.library.stored_facts import facts_of
    from supervisor.library.stored_model import stored_models

    rows = [(model, facts_of(model)) for model in stored_models()]
    if as_json:
        click.echo(json.dumps([_as_json(*row) for row in rows], indent=2))
    else:
        click.echo(_table(rows) if rows else _NO_MODELS)


@click.command(cls=CommandWithHints, short_help="Show one model on this machine.")
@click.argument("model")
@click.option("--template", "only_template", is_flag=True, help="Print the chat template alone.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def show(model: str, only_template: bool, as_json: bool) -> None:
    """Show a model that is here: shape, parameters, context, license, settings of generation and chat template.

    \b
    Exit status:
      0  it was shown
      2  it is not here
    """
    from supervisor.library.stored_facts import facts_of, text_of
    from supervisor.library.stored_model import find_stored

    stored = find_stored(model)
    if stored is None:
        fail(
            ExitCode.UNUSABLE,
            f"{model}: expected a model that `supervisor models` lists, got none; `supervisor pull` fetches one",
        )
    facts, text = facts_of(stored), text_of(stored)
    if only_template:
        click.echo(text.template)
        return
    content = {**_as_json(stored, facts), "shape": text.shape, "generation": text.generation, "template": text.template}
    click.echo(json.dumps(content, indent=2) if as_json else _lines(content))


def _as_json(model: StoredModel, facts: StoredFacts) -> dict[str, Any]:
    return {
        "model": model.name,
        "source": model.source.value,
        "path": str(model.path),
        "bytes": model.n_bytes,
        "type": facts.model_type,
        "parameters": facts.n_parameters,
        "context_tokens": facts.context_tokens,
        "weights": facts.numbers,
        "license": facts.license,
        "runs": facts.room,
        "lacks": facts.lack,
    }


def _table(rows: list[tuple[StoredModel, StoredFacts]]) -> str:
    from supervisor.library.sizes import count_text, size_text
    from supervisor.tables.table import table_text, terminal_width

    cells = list[list[str]]()
    for model, facts in rows:
        parameters = count_text(facts.n_parameters) if facts.n_parameters else "-"
        context = f"{facts.context_tokens:,}" if facts.context_tokens else "-"
        here = facts.room or f"no: {facts.lack}"
        cells.append(
            [model.name, size_text(model.n_bytes), facts.model_type or "-", parameters, context, facts.numbers or "-", here]
        )
    return table_text(_HEADS, cells, terminal_width(), len(_HEADS) - 1)


def _lines(content: dict[str, Any]) -> str:
    lines = []
    for name, value in content.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {one}" for key, one in value.items())
        if value not in ("", 0):
            lines.append(f"{name:<16}{value}" if "\n" not in str(value) else f"{name}:\n{value}")
    return "\n".join(lines)
