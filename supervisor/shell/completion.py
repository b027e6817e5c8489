"""`supervisor completion`: prints the script by which a shell completes commands, flags and choices."""

from __future__ import annotations

import click

from supervisor.foreign.foreign_names import CommandWithHints

_SHELLS = ("bash", "zsh", "fish")
_NAMES = ("supervisor", "tardigrade")  # of this program


@click.command(cls=CommandWithHints, short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes commands, flags and choices. To use it:

    \b
    bash    echo 'source <(supervisor completion bash)' >> ~/.bashrc
    zsh     echo 'source <(supervisor completion zsh)' >> ~/.zshrc
    fish    supervisor completion fish > ~/.config/fish/completions/supervisor.fish

    \b
    Exit status:
      0  printed
      2  there is no script for this shell
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    called = context.find_root().info_name
    name = called if called in _NAMES else _NAMES[0]
    variable = f"_{name.upper()}_COMPLETE"  # by which the script asks this program
    # `source` of bash's class would start a bash to ask for its version
    click.echo(ShellComplete.source(kind(context.find_root().command, {}, name, variable)))
