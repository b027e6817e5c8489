"""The promise itself, over real processes: whatever dies, every stream goes on at the next token and says what it would have
said. The model is the hash chain: one lost, repeated or changed token changes everything after it."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from messages.client import Client
from tests.support.real_server import WITH_SPARES
from tests.support.supervisor.command_line import DEADLINE_S, RunningServer, serving
from tests.support.workers.pulse import PULSE

STREAMS = 8
TOKENS = 300
MOST_KILLS = 6
VICTIMS = ("worker/0.0", "worker/0.1", "scheduler/0", "cache_directory/0", "speculation/0")


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A gang of two ranks whose steps take a few milliseconds."""
    path = tmp_path_factory.mktemp("run") / "d"
    flags = (*WITH_SPARES, "--tp", "2", "--set", "worker.hash_chain_step_s=0.01", "--log-level", "warning")
    with serving(path, *flags) as running:
        yield running


class Stream(threading.Thread):
    """One client: reads a stream to its end."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        body = {
            "model": "hash-chain",
            "prompt": f"prompt of stream {number} " * 5,
            "max_tokens": TOKENS,
            "seed": number,
            "temperature": 1.0,
            "ignore_eos": True,
            "stream": True,
        }
        headers = {"Content-Type": "application/json"}
        self._request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), headers)
        self.text, self.reason, self.longest_gap_s = "", "", 0.0

    def run(self) -> None:
        heard_s = time.monotonic()
        with urllib.request.urlopen(self._request, timeout=DEADLINE_S) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                for choice in json.loads(line[6:]).get("choices", ()):
                    self.text += choice["text"]
                    self.reason = choice["finish_reason"] or self.reason
                self.longest_gap_s = max(self.longest_gap_s, time.monotonic() - heard_s)
                heard_s = time.monotonic()


def run_streams(server: RunningServer) -> list[Stream]:
    """Start all streams."""
    url = server.status()["url"]
    streams = [Stream(url, number) for number in range(STREAMS)]
    for stream in streams:
        stream.start()
    return streams


def test_streams_survive_the_death_of_anybody_behind_the_gateway(server: RunningServer) -> None:
    calm = run_streams(server)
    for stream in calm:
        stream.join(DEADLINE_S)
    assert [len(stream.text.split()) for stream in calm] == [TOKENS] * STREAMS
    PULSE.beat()
    stormy = run_streams(server)
    dice, kills = random.Random(7), 0
    while any(stream.is_alive() for stream in stormy):
        stormy[0].join(0.4)
        PULSE.beat()
        if kills == MOST_KILLS:  # a gang that is shot faster than it starts would never get anywhere
            continue
        victim = dice.choice(VICTIMS)
        kills += server.kill(victim)
        assert server.process.poll() is None
    PULSE.end()
    assert kills >= 3
    assert [stream.reason for stream in stormy] == ["length"] * STREAMS
    assert [stream.text for stream in stormy] == [stream.text for stream in calm]


@pytest.mark.long
def test_streams_of_the_client_library_survive_the_gateway_too(server: RunningServer) -> None:
    endpoint = f"ipc://{server.run_dir}/zeromq-0"

    def tell(number: int, into: dict[int, list[int]]) -> None:
        with Client(endpoint) as client:
            asked = {"temperature": 1.0, "max_tokens": TOKENS, "ignore_eos": True, "deadline_s": DEADLINE_S}
            answer = client.generate(f"prompt of client {number}", seed=number, **asked)
            into[number] = answer.tokens

    def tell_all() -> tuple[list[threading.Thread], dict[int, list[int]]]:
        answers: dict[int, list[int]] = {}
        threads = [threading.Thread(target=tell, args=(number, answers), daemon=True) for number in range(STREAMS)]
        for thread in threads:
            thread.start()
        return threads, answers

    threads, calm = tell_all()
    for thread in threads:
        thread.join(DEADLINE_S)
    PULSE.beat()
    threads, stormy = tell_all()
    kills = 0
    while any(thread.is_alive() for thread in threads):
        threads[0].join(0.8)
        PULSE.beat()
        kills += kills < MOST_KILLS and server.kill("gateway/0")
    PULSE.end()
    assert kills >= 1
    assert {number: len(tokens) for number, tokens in calm.items()} == dict.fromkeys(range(STREAMS), TOKENS)
    assert stormy == calm
