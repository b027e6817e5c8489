"""The configuration: what is refused, and how it is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.errors import ConfigError
from supervisor.config.config_file import convert, overlay, table_of
from supervisor.config.server_config import CONFIG_VARIABLE, ServerConfig, changed, described, load_config

_DESCRIBED = described(ServerConfig())
SECTIONS = [name for name, value in _DESCRIBED.items() if isinstance(value, dict) and name != "tenants"]
TOP_LEVEL = [name for name in _DESCRIBED if name not in SECTIONS]


def test_defaults_serve() -> None:
    config = load_config(None)
    assert (config.gpus, config.tp, config.replicas, config.port, config.host) == (None, 0, 0, 8000, "127.0.0.1")


def test_file_then_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.toml"
    path.write_text('port = 9000\nmodel = "hash-chain"\n[gateway]\nmax_n = 4\n')
    flags = [{"port": 9001}, table_of("gateway.max_batch=7")]
    config = load_config(str(path), flags)
    assert (config.port, config.model, config.gateway.max_n, config.gateway.max_batch) == (9001, "hash-chain", 4, 7)
    monkeypatch.setenv(CONFIG_VARIABLE, str(path))
    assert load_config(None).port == 9000


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("prot=1", "prot: unknown key; did you mean port?"),
        ("gateway.max_bdy=1", "gateway.max_bdy: unknown key; did you mean gateway.max_body_bytes?"),
        ("supervisor.drain=1", "supervisor.drain: unknown key; did you mean supervisor.drain_s?"),
        ("scheduler.prefix_resue=false", "scheduler.prefix_resue: unknown key; did you mean scheduler.prefix_reuse?"),
        ("gateway.prefix_reuse=false", "gateway.prefix_reuse: unknown key; did you mean scheduler.prefix_reuse?"),
        ("schedular.prefix_reuse=false", "schedular: unknown key; did you mean scheduler?"),
        ("gateway.max_n=0", "gateway.max_n: expected a whole number >= 1, got 0"),
        ("worker.dtype=half", "worker.dtype: expected one of auto, float32, bfloat16, float16, got 'half'; here it is float16"),
        ("worker.dtype=int4", "worker.dtype: expected one of auto, float32, bfloat16, float16, got 'int4'"),
        ("scheduler.eviction=lfu", None),
        ("scheduler.eviction=w-tinylfu", None),
        ("worker.urgent_stream=maybe", "worker.urgent_stream: expected one of auto, true, false, got 'maybe'"),
        ("scheduler.eviction=arc", "scheduler.eviction: expected one of lru, lfu, fifo, w-tinylfu, adaptive, got 'arc'"),
        ('port="http"', "port: expected a whole number, got 'http'"),
        ("gpus=some", "gpus: expected a whole number, got 'some'"),
        ("gpus=true", "gpus: expected a whole number, got true"),
        ("worker.lease_s=abc", 'worker.lease_s: expected a number, or a time such as "90s" or "2min", got \'abc\''),
        (
            'gateway.allowed_hosts=["a.example","https://b.example"]',
            "gateway.allowed_hosts[1]: expected a host name without scheme and port, or *, got 'https://b.example'",
        ),
        (
            "gateway.allowed_hosts=a.example",
            """gateway.allowed_hosts: expected a list such as ["a.example"], got 'a.example'""",
        ),
        ("gateway.allowed_hosts=[3]", "gateway.allowed_hosts[0]: expected text, got 3"),
        (
            """gateway.default_sampling={"top_p": 1}""",
            """gateway.default_sampling: expected a table such as {key = 1}, as TOML writes it, got '{"top_p": 1}'""",
        ),
        (
            "gateway.default_sampling.temprature=1",
            "gateway.default_sampling.temprature: unknown; did you mean temperature?",
        ),
        (
            "gateway.default_sampling.top_p=2",
            "gateway.default_sampling.top_p: expected a value in the range of top_p in a request, got 2",
        ),
        ("gateway.chat_template={% for", "gateway.chat_template: chat template: unexpected 'end of template'"),
        (
            "gateway.chat_template=/no.jinja",
            "gateway.chat_template: expected a template or a file with one, got /no.jinja: No such file or directory",
        ),
        (
            "gateway.caller_header=X-Caller: a",
            "gateway.caller_header: expected the name of a header, without blanks and colon, got 'X-Caller: a'",
        ),
        ("gateway=3", "gateway: expected a table, as gateway.KEY=VALUE makes one, got 3"),
        ("worker.host_cache_bytes=1KiB", None),
        (
            "worker.host_cache_bytes=8",
            'worker.host_cache_bytes: expected 0 or at least 1024 bytes, or a size such as "8GiB", got 8',
        ),
        ("foo=3", f"foo: unknown key; known are {', '.join(TOP_LEVEL)}, and the keys of the sections {', '.join(SECTIONS)}"),
        ("port.x=3", "port: expected a whole number, got a table"),
        ("dtype=float32", "dtype: unknown key; did you mean worker.dtype?"),
        ("deterministic=true", "deterministic: unknown key; did you mean worker.deterministic?"),
        ("tenants.a.wieght=2", "tenants.a.wieght: unknown key; did you mean weight?"),
        ("tenants.a.weight=0", "tenants.a.weight: expected a number > 0.0, got 0"),
        ("tenants.a=3", "tenants.a: expected a table, got 3"),
        ("tenants.a.weight=2", "tenants: expected none without api_keys, because the key of a call names its tenant"),
        ("gatway.max_n=4", "gatway: unknown key; did you mean gateway?"),
        ("custodian.socket=x", "custodian.socket: unknown key; did you mean custodian.max_sockets?"),
        ("worker.tp=2", "worker.tp: the supervisor sets this key; set tp instead"),
        ("gateway.journal_path=x", "gateway.journal_path: the supervisor sets this key; set state_dir instead"),
        ("gateway.keys_file=x", "gateway.keys_file: the supervisor sets this key; set api_keys instead"),
        (
            "zeromq_host=0.0.0.0",
            "zeromq_port: expected a port beside zeromq_host 0.0.0.0, such as 5555, got 0, with which nothing listens over TCP",
        ),
        (
            "zeromq_curve=true",
            "zeromq_port: expected a port beside zeromq_curve, such as 5555, got 0, with which nothing listens over TCP",
        ),
        ("tenant.a.weight=2", "tenant: unknown key; did you mean tenants?"),
        (
            "scheduler.order=arrival",
            "scheduler.order: unknown key; it is scheduler.policy now: priority is priority, arrival is fcfs",
        ),
        ("gateway.ack_messages=300", "scheduler.unacked_messages: expected at least twice gateway.ack_messages (600), got 512"),
        (
            "gateway.answer_cache=semantic",
            'gateway.answer_cache: expected an embedding_model beside "semantic" (all-MiniLM-L6-v2, for example), got none',
        ),
        (
            "gateway.names_holders=true",
            "gateway.names_holders: the supervisor sets this key; set worker.exchange_bytes instead",
        ),
        ("supervisor.frozen_s=1", "supervisor.frozen_s: expected at least three times supervisor.beat_s (1.5 s), got 1"),
    ],
)
def test_a_bad_value_is_named(assignment: str, said: str | None) -> None:
    if said is None:
        load_config(None, [table_of(assignment)])
        return
    with pytest.raises(ConfigError) as caught:
        load_config(None, [table_of(assignment)])
    assert str(caught.value) == said


def test_similar_answers_need_the_library_of_their_index(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [table_of("gateway.answer_cache=semantic"), table_of("embedding_model=minilm")]
    assert load_config(None, tables).gateway.answer_cache == "semantic"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"expected the package usearch .* \(pip install 'tardigrade-serve\[semantic\]'\), got none"
    ):
        load_config(None, tables)


def test_all_errors_are_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(
        'port = "http"\nprot = 1\n[gateway]\nmax_n = 0\nallowed_hosts = ["a b", "c:1"]\n[scedule]\n[worker]\nx = 1\n'
    )
    with pytest.raises(ConfigError) as caught:
        load_config(str(path), [{"worker": {"dtype": "int4"}}])
    title, *errors = str(caught.value).splitlines()
    assert title == "the configuration has 7 errors:"
    assert [error.strip().partition(":")[0] for error in errors] == [
        "prot", "scedule", "worker.x", "port", "gateway.max_n", "gateway.allowed_hosts[0]", "worker.dtype",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"(?s)has 2 errors:.*supervisor\.frozen_s: .*scheduler\.unacked_messages: "):
        load_config(None, [table_of("supervisor.frozen_s=1"), table_of("gateway.ack_messages=300")])


def test_zeromq_does_not_listen_on_a_network_without_keys() -> None:
    with pytest.raises(ConfigError, match=r"zeromq_host: .* got 0\.0\.0\.0"):
        load_config(None, [{"zeromq_port": 5555, "zeromq_host": "0.0.0.0"}])
    with pytest.raises(ConfigError, match=r"zeromq_curve: expected true with zeromq_host 0\.0\.0\.0: "):
        load_config(None, [{"zeromq_port": 5555, "zeromq_host": "0.0.0.0", "api_keys": True, "zeromq_curve": False}])


@pytest.mark.parametrize(
    ("flags", "has_curve"),
    [
        ({}, False),
        ({"zeromq_curve": True}, True),
        ({"zeromq_host": "localhost"}, False),
        ({"zeromq_host": "0.0.0.0", "api_keys": True}, True),
        ({"zeromq_host": "::", "insecure": True}, True),
    ],
)
def test_zeromq_is_encrypted_where_other_machines_come_in(flags: dict[str, object], has_curve: bool) -> None:
    assert load_config(None, [{"zeromq_port": 5555, **flags}]).has_curve is has_curve


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"tls_cert": "x"}, "gateway.tls_key: expected a file beside gateway.tls_cert, got none"),
        ({"tls_key": "x"}, "gateway.tls_cert: expected a file beside gateway.tls_key, got none"),
        ({"tls_client_ca": "x"}, "gateway.tls_client_ca: expected gateway.tls_cert and gateway.tls_key beside it, got none"),
        ({"tls_cert": "/nowhere", "tls_key": "/nowhere"}, "gateway.tls_cert: expected a file that can be read, got /nowhere"),
    ],
)
def test_files_of_tls_come_together_and_can_be_read(keys: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_config(None, [{"gateway": keys}])


def test_one_port_serves_one_protocol() -> None:
    with pytest.raises(ConfigError, match=r"zeromq_port: "):
        load_config(None, [{"zeromq_port": 8000}])


def test_a_file_that_is_not_there_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config: expected a file that can be read at .*missing\.toml"):
        load_config(str(tmp_path / "missing.toml"))
    (tmp_path / "bad.toml").write_text("port = = 3")
    with pytest.raises(ConfigError, match=r"bad\.toml: expected TOML, got line 1, column 8: invalid value$"):
        load_config(str(tmp_path / "bad.toml"))
    (tmp_path / "bad.toml").write_text('model = "a')
    with pytest.raises(ConfigError, match=r"bad\.toml: expected TOML, got end of document: unterminated string$"):
        load_config(str(tmp_path / "bad.toml"))
    (tmp_path / "bad.toml").write_bytes(b"model = '\xff'")
    with pytest.raises(ConfigError, match=r"bad\.toml: expected TOML in UTF-8, got bytes that are not UTF-8$"):
        load_config(str(tmp_path / "bad.toml"))


@pytest.mark.parametrize("text", ["", "port", "=3", ".port=3", "gateway.=1"])
def test_an_assignment_needs_a_key_and_a_value(text: str) -> None:
    with pytest.raises(ConfigError, match=r"set: expected section\.key=value"):
        table_of(text)


def test_what_is_printed_can_be_read_again() -> None:
    table = described(load_config(None, [{"gpus": 2, "model": "/models/x"}]))
    assert described(load_config(None, [table])) == table


def test_what_differs_from_the_defaults_is_told_by_whole_keys() -> None:
    assert changed(ServerConfig()) == {}
    table = {"gpus": 2, "port": 8000, "gateway": {"max_n": 4, "max_batch": 4096}}
    assert changed(load_config(None, [table])) == {"gpus": 2, "gateway.max_n": 4}


KEYS = st.text(st.characters(categories=["Ll"]), min_size=1, max_size=6)
TABLES = st.recursive(st.integers(), lambda values: st.dictionaries(KEYS, values, max_size=3), max_leaves=8)


@given(st.dictionaries(KEYS, TABLES), st.dictionaries(KEYS, TABLES))
def test_overlay_keeps_what_is_not_covered(below: dict, above: dict) -> None:
    merged = overlay(below, above)
    assert merged.keys() == below.keys() | above.keys()
    assert overlay(merged, above) == merged
    assert overlay({}, above) == above


@given(KEYS)
def test_every_unknown_key_is_refused(key: str) -> None:
    known = {field.name for field in msgspec.structs.fields(ServerConfig)}
    if key not in known:
        with pytest.raises(ConfigError, match=rf"^{key}: unknown key"):
            convert({key: 1}, ServerConfig)


def test_reading_the_configuration_imports_no_numpy() -> None:
    """It would take as long as all the rest of a start that is refused."""
    code = "import supervisor.config.server_config, sys; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "False\n"


def test_moves_between_replicas_need_a_vault_and_turn_it_on() -> None:
    on = table_of("worker.exchange_bytes=1MiB")
    assert load_config(None, [on]).asks_vault is True
    assert load_config(None, []).asks_vault is None
    assert load_config(None, [on, table_of("vault=false"), table_of("standby=true")]).asks_vault is False
    with pytest.raises(ConfigError, match=r"^worker\.exchange_bytes: expected 0 without a vault"):
        load_config(None, [on, table_of("vault=false")])


def test_errors_of_tenants_and_of_other_keys_are_named_together() -> None:
    flags = ["tenants.a.weight=0", "tenants.a.requests_per_minute=3", "tenants.a b={}", "gateway.degraded_n=-2"]
    with pytest.raises(ConfigError) as caught:
        load_config(None, [table_of(flag) for flag in flags])
    assert str(caught.value).splitlines() == [
        "the configuration has 4 errors:",
        "  tenants.a.requests_per_minute: unknown key; did you mean requests_per_min?",
        "  tenants.a.weight: expected a number > 0.0, got 0",
        "  tenants: expected a name of 1 to 64 letters, digits, dots, hyphens or underscores, got 'a b'",
        "  gateway.degraded_n: expected a whole number >= 0, got -2",
    ]
