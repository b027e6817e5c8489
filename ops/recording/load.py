"""Clients that ask a server again and again while a picture of it is taken."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import httpx

_WORDS = ("a", "water", "bear", "in", "moss", "dries", "to", "a", "tun", "and", "waits", "for", "years", "until", "rain")


@contextlib.contextmanager
def load_on(url: str, n_clients: int) -> Iterator[None]:
    """For the time of a `with`, so many clients ask the server at `url`. Each asks, reads the answer, and thinks for up to a
    second."""
    is_over = threading.Event()
    clients = [threading.Thread(target=_ask, args=(url, is_over, seed)) for seed in range(n_clients)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        is_over.set()
        for client in clients:
            client.join()


def _ask(url: str, is_over: threading.Event, seed: int) -> None:
    dice = random.Random(seed)
    with httpx.Client(base_url=url, timeout=120.0) as http:
        while not is_over.is_set():
            prompt = "Continue this story about a tardigrade: " + " ".join(dice.choices(_WORDS, k=dice.randrange(5, 80)))
            with contextlib.suppress(httpx.HTTPError):  # of a connection that came while a gateway was away
                http.post("/v1/completions", json={"prompt": prompt, "max_tokens": dice.randrange(20, 90)})
            is_over.wait(dice.random())
