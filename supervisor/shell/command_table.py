"""The commands that are imported when they are asked for, with their short helps, and the sections of `supervisor --help`."""

from __future__ import annotations

from supervisor.shell.lazy_group import LazyCommand

COMMANDS = {
    "bench": LazyCommand("supervisor.bench.command", "Measure a server: rates, first tokens, gaps, errors."),
    "cache": LazyCommand("supervisor.operator.cache_command", "Forget what a running server has cached."),
    "chat": LazyCommand("supervisor.chat.command", "Talk to a model in the terminal."),
    "completion": LazyCommand("supervisor.shell.completion", "Print the script that completes commands in a shell."),
    "config": LazyCommand(
        "supervisor.shell.config_command", "Print a sample configuration or a server's own; write out files."
    ),
    "cordon": LazyCommand("supervisor.cordons.command", "Send no new requests to one replica."),
    "doctor": LazyCommand("supervisor.doctor.command", "Look for what would keep a server from working well here."),
    "drain": LazyCommand("supervisor.operator.drain_commands", "Refuse new requests, wait for those in progress."),
    "drill": LazyCommand(
        "supervisor.drill.command", "Harm a server under load; report what was lost and how long streams paused."
    ),
    "keys": LazyCommand("supervisor.access.keys_command", "API keys of a server that asks for them."),
    "logs": LazyCommand("supervisor.log_reader.command", "Show the log of a server, of one process or of one request."),
    "models": LazyCommand("supervisor.library.models_command", "List the models on this machine."),
    "plan": LazyCommand("supervisor.capacity.command", "How much load a server would carry, and on what."),
    "pull": LazyCommand("supervisor.library.pull_command", "Fetch a model to this machine."),
    "restart": LazyCommand("supervisor.restart.command", "Replace every process while the server goes on serving."),
    "rm": LazyCommand("supervisor.library.rm_command", "Remove a model from this machine."),
    "run": LazyCommand("supervisor.chat.run_command", "Ask a model one thing."),
    "show": LazyCommand("supervisor.library.models_command", "Show one model on this machine."),
    "stop": LazyCommand("supervisor.operator.drain_commands", "Finish the requests in progress, then end."),
    "tenants": LazyCommand("supervisor.access.tenants_command", "Weights, priorities and limits of tenants."),
    "top": LazyCommand("supervisor.top.command", "Watch a server on one screen."),
    "uncordon": LazyCommand("supervisor.cordons.command", "Send requests to a replica again."),
}

# The commands of `supervisor --help`, in the order in which one comes to need them
SECTIONS: dict[str, tuple[str, ...]] = {
    "Serve": ("start", "check-config", "plan", "doctor", "config"),
    "Ask": ("chat", "run", "bench"),
    "Models": ("pull", "models", "show", "rm"),
    "Watch": ("status", "top", "logs"),
    "Operate": ("stop", "restart", "drain", "cordon", "uncordon", "cache", "drill"),
    "Users": ("keys", "tenants"),
    "Shell": ("completion",),
}
