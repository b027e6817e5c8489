"""The command line of `supervisor plan`. Heavy modules are imported when it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import config_of, fail

if TYPE_CHECKING:
    from gpu_workers.model_store.model_config import ModelConfig
    from supervisor.capacity.capacity_plan import CapacityPlan, Forecast
    from supervisor.capacity.workload import OfferedLoad
    from supervisor.config.server_config import ServerConfig
    from supervisor.placement.hardware import Host

_LOAD = "Requests a second that arrive at random, and their mean lengths."
_LOAD_DEFAULT = "1 requests/s, 512 prompt tokens, 128 output tokens"
_GPU = "GPUs to plan for, such as H100: they need not be here. Default: those of this machine, else CPU cores."
_MEASURE = "Start a private server on this machine and measure it for a minute, instead of computing."
_UNLIMITED_BYTES = 1 << 50  # of a host that is planned for; the report says how much is needed


def _server_flags(command: Any) -> Any:
    """The flags of `supervisor start` that decide what a server carries."""
    options = [
        click.option("--config", type=click.Path(dir_okay=False), help="TOML file. Default: $TARDIGRADE_CONFIG, if set."),
        click.option("--model", help="As for start: a folder (config.json is enough), GGUF file or name on the hub."),
        click.option("--tp", type=int, help="GPUs for each copy of the model."),
        click.option("--replicas", type=int, help="Copies of the model."),
        click.option("--gateways", type=int, help="Processes that accept requests."),
        click.option("--dtype", "worker__dtype", help="auto, float32, bfloat16 or float16."),
        click.option("--quantization", "worker__quantization", help="exact, auto, none, int8, int4, or fp8 on GPUs."),
        click.option("--kv-dtype", "worker__kv_dtype", help="auto, int8, int4 or fp8 (GPUs)."),
        click.option("--max-sequences", "worker__n_slots", type=int, help="Sequences at once in a replica."),
        click.option("--max-length", type=int, help="Tokens of one sequence."),
        click.option("--standby/--no-standby", default=None, help="A second gang for each replica."),
        click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any key of the configuration."),
    ]
    return reduce(lambda inner, option: option(inner), reversed(options), command)


@click.command(cls=CommandWithHints, short_help="How much load a server would carry, and on what.")
@click.option("--load", "load_text", default=_LOAD_DEFAULT, show_default=True, help=_LOAD)
@click.option("--gpus", type=int, help="Number of GPUs; 0: CPU cores of this machine.")
@click.option("--gpu", help=_GPU)
@click.option("--gpu-memory-bytes", metavar="SIZE", help="Memory of each GPU, if it differs: 80GiB.")
@click.option("--measure", is_flag=True, help=_MEASURE)
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@_server_flags
def plan(load_text: str, gpu: str | None, gpu_memory_bytes: str | None, measure: bool, as_json: bool, **flags: Any) -> None:
    """Say whether a model fits, how much load a server of it carries, what limits it and what it needs. Nothing is started,
    except with --measure. Of a model on the hub only its configuration is fetched.

    \b
    supervisor plan --measure --load "2 requests/s, 128 prompt tokens, 64 output tokens"
        the packaged model on this machine
    supervisor plan --model /models/llama-3.1-8b --gpu H200 --gpus 2 \\
        --load "20 requests/s, 1000 prompt tokens, 250 output tokens"

    Places and pages are counted as a start counts them; the layout is the one that a start would choose, or another one if
    only that carries the load.

    \b
    Exit status:
      0  the model fits; whether the load is carried, the text says
      2  it does not fit, or an option cannot be used
    """
    from messages.errors import ConfigError, Unavailable
    from supervisor.capacity.capacity_plan import best_of
    from supervisor.capacity.report import plan_json, plan_text
    from supervisor.capacity.workload import parse_load

    try:
        load, config = parse_load(load_text), config_of(flags)
        if measure and gpu:
            raise ConfigError(f"measure: expected no --gpu, because this machine is measured, got {gpu}")
        model = _model_of(config)
        plans = list(_plans(config, model, _host(config, gpu, gpu_memory_bytes), load, flags if measure else None))
    except (ConfigError, Unavailable) as error:
        fail(ExitCode.UNUSABLE, str(error))
    asked, others = plans[0], plans[1:]
    best = best_of(others, asked)
    rest = [one for one in plans if one is not best]
    name = config.model_name or _name_of(config)
    click.echo(json.dumps(plan_json(name, best, rest), indent=2) if as_json else plan_text(name, best, rest))


def _model_of(config: ServerConfig) -> ModelConfig:
    from gpu_workers.models.resolve import read_config
    from messages.errors import ConfigError

    try:
        model = read_config(config.model)
    except (ValueError, OSError) as error:
        raise ConfigError(f"model: {error}") from None
    if model is None:
        raise ConfigError(f"model: expected one with weights, got {config.model}")
    return model


def _name_of(config: ServerConfig) -> str:
    from gpu_workers.models.resolve import find_model

    return find_model(config.model).name


def _host(config: ServerConfig, gpu: str | None, memory: str | None) -> Host:
    """The machine to plan for: this one, or one with GPUs of a kind."""
    import os

    from gpu_workers.cpu.instructions import has_exact_products, has_int8_dot
    from gpu_workers.runner.memory_estimate import memory_bytes
    from messages.errors import ConfigError
    from supervisor.capacity.gpu_kinds import find_kind
    from supervisor.config.units import without_units
    from supervisor.placement.hardware import Host
    from supervisor.placement.host import VISIBLE_VARIABLE, find_gpus

    if gpu is None:
        if memory is not None:
            raise ConfigError(f"gpu-memory-bytes: expected --gpu beside it, which names the kind, got {memory}")
        gpus = () if config.gpus == 0 else find_gpus(os.environ.get(VISIBLE_VARIABLE))
        if config.gpus and not gpus:
            raise ConfigError(f"gpus: expected --gpu KIND to plan for GPUs that are not here, got {config.gpus}")
        return Host(gpus, memory_bytes(), has_exact_products(), has_int8_dot())
    kind = find_kind(gpu)
    each_bytes = without_units({"gpu_memory_bytes": int(memory) if memory and memory.isdecimal() else memory})
    n_bytes = each_bytes["gpu_memory_bytes"]
    if n_bytes is not None and (not isinstance(n_bytes, int) or n_bytes <= 0):
        raise ConfigError(f"gpu-memory-bytes: expected a size such as 80GiB, got {memory}")
    n_gpus = 1 if config.gpus is None else config.gpus
    if n_gpus < 1:
        raise ConfigError(f"gpus: expected 1 or more with --gpu, got {n_gpus}")
    return Host(tuple(kind.gpu(index, n_bytes) for index in range(n_gpus)), _UNLIMITED_BYTES)


def _plans(
    config: ServerConfig, model: ModelConfig, host: Host, load: OfferedLoad, measured: dict[str, Any] | None
) -> Iterator[CapacityPlan]:
    """The plan of what a start would choose, then those with another tp. `measured`: flags to measure with; None: computed."""
    import msgspec

    from gpu_workers.layers.shard import split_sizes
    from messages.errors import ConfigError
    from supervisor.capacity.capacity_plan import plan_capacity
    from supervisor.capacity.forecast import forecast
    from supervisor.placement.host import placed

    if config.pp > 1:
        raise ConfigError(f"pp: expected 1 (no times of pipelines are known), got {config.pp}; --tp is forecast")
    first = placed(host, model, config)
    own = _measured(config, model, host, load, measured) if measured is not None else forecast(config, model, first)
    yield plan_capacity(config, model, first, load, own)
    if config.tp or config.replicas or not first.gpus or measured is not None:
        return
    for tp in split_sizes(model):
        if tp == first.tp or tp > len(host.gpus):
            continue
        changed = msgspec.structs.replace(config, tp=tp)
        try:
            other = placed(host, model, changed)
            yield plan_capacity(changed, model, other, load, forecast(changed, model, other))
        except ConfigError:  # this one does not fit
            continue


def _measured(
    config: ServerConfig, model: ModelConfig, host: Host, load: OfferedLoad, flags: dict[str, Any]
) -> Forecast:  # fmt: skip
    """Times of one replica on this machine."""
    from supervisor.capacity.calibration import calibrate_here
    from supervisor.capacity.capacity_plan import Forecast, plan_capacity
    from supervisor.capacity.forecast import MEASURED, forecast
    from supervisor.placement.host import placed

    placement = placed(host, model, config)
    guess = plan_capacity(config, model, placement, load, forecast(config, model, placement))
    options = {
        _flag(name): value for name, value in flags.items() if value is not None and name not in ("model", "assignments")
    }
    options |= {"set": dict(map(_assigned, flags["assignments"])), "speculation": False, "replicas": 1}
    times = calibrate_here(config.model, options, load, guess.kv.n_at_once, lambda line: click.echo(line, err=True))
    return Forecast(times, MEASURED, is_measured=True)


def _assigned(text: str) -> tuple[str, Any]:
    """A key and its value from "KEY=VALUE", as `supervisor start --set` reads it."""
    from supervisor.config.config_file import table_of

    key, value = text.partition("=")[0].strip(), table_of(text)
    for part in key.split("."):
        value = value[part.strip()]
    return key, value


def _flag(name: str) -> str:
    """The flag of `supervisor start` for a key of these options."""
    return {"worker__n_slots": "max_sequences"}.get(name, name.rpartition("__")[2])
