"""Mutated messages in legal conversations for every inbox of a real server, from a process of the same user.

The sender follows the protocol of the links (numbers, incarnations of the receivers) under names of its own that belong to the
right roles, and mutates what it sends: envelopes, messages, arrays, the number of frames. Under the names of living actors it
sends what is not the next message of their links. It does not go on with the links of living actors: SECURITY.md says what a
process that does so can do.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec
import zmq

from messages.descriptors import packets
from messages.lifecycle.tree import StatusReport, StatusWanted
from messages.routes import INTERNAL_KINDS, ROUTES, Route
from messages.run_dir import custodian_socket, http_socket, vault_path
from messages.wire.codec import Codec, encode_envelope
from messages.wire.envelope import ENVELOPE_VERSION, Envelope
from messages.wire.message import Message
from supervisor.directories.run_dir_files import supervisor_endpoint
from tests.support.examples.messages import INTERNAL
from tests.support.fuzz.mutations import http_request, mutated

_PER_CONNECTION = 250
_FAR_AHEAD = 1_000_000  # messages; no link comes so far here
_WAIT_S = 60.0


@dataclass(frozen=True)
class Inbox:
    """The inbox of one incarnation of an actor. Incarnation 0 addresses any."""

    name: str
    incarnation: int
    endpoint: str

    @property
    def role(self) -> str:
        return self.name.partition("/")[0]


def inboxes(run_dir: Path, report: StatusReport) -> list[Inbox]:
    """The inbox of every child and of the supervisor."""
    files = {child.name: run_dir / f"{child.name.replace('/', '-')}.{child.incarnation}" for child in report.children}
    children = [Inbox(child.name, child.incarnation, f"ipc://{files[child.name]}") for child in report.children]
    return [*children, Inbox("supervisor/0", 0, supervisor_endpoint(run_dir))]


def fuzz_inbox(chance: random.Random, inbox: Inbox, n_messages: int, living: list[Inbox]) -> None:
    """Send mutated messages of every kind that this actor's role receives. Waits until they are written."""
    codec: Codec[Message] = Codec(INTERNAL_KINDS)
    routes = [route for route in ROUTES if inbox.role in route.receivers and not _is_order(route)]
    examples = [(route, example) for example in INTERNAL for route in routes if route.kind is type(example)]
    context = zmq.Context()
    try:
        for begin in range(0, n_messages, _PER_CONNECTION):
            link = context.socket(zmq.DEALER)
            link.setsockopt(zmq.LINGER, round(1000 * _WAIT_S))
            link.connect(inbox.endpoint)
            sent: dict[str, Iterator[int]] = {}
            for _ in range(min(_PER_CONNECTION, n_messages - begin)):
                route, example = chance.choice(examples)
                role = chance.choice(route.senders)
                name = f"{role}/{chance.randrange(70, 74)}" + (".0" if role == "worker" else "")
                number = next(sent.setdefault(name, count(1)))
                envelope = Envelope(ENVELOPE_VERSION, name, 1, inbox.name, inbox.incarnation, number, begin + 1)
                peers = [peer for peer in living if peer.role == role]
                if peers and chance.random() < 0.2:
                    peer, number = chance.choice(peers), _FAR_AHEAD + chance.randrange(1000)
                    envelope = Envelope(ENVELOPE_VERSION, peer.name, peer.incarnation, inbox.name, inbox.incarnation, number, 1)
                link.send_multipart(_frames(chance, envelope, *codec.encode(example)))
            link.close()
    finally:
        context.term()  # when everything is written


def _is_order(route: Route) -> bool:
    """True for what an operator may order: a process that may send it may stop the server."""
    return "operator" in route.senders and route.kind is not StatusWanted


def _frames(chance: random.Random, envelope: Envelope, body: bytes, arrays: bytes) -> list[bytes]:
    """One message with something wrong in it, more often than not."""
    head = encode_envelope(envelope)
    match chance.randrange(10):
        case 0:
            return [mutated(chance, head) if envelope.sequence < _FAR_AHEAD else head, body, arrays]
        case 1:
            frames = [head, body, arrays]
            return frames[: chance.randrange(1, 3)] if chance.random() < 0.5 else [*frames, mutated(chance, body)]
        case 2:
            return [head, body, mutated(chance, arrays)]
        case _:
            return [head, mutated(chance, body), arrays]


def fuzz_descriptor_store(chance: random.Random, path: Path, n_packets: int) -> None:
    """Send mutated packets, with and without descriptors, under names of no actor; remove what was kept."""
    owners = [f"gateway/{number}" for number in range(70, 74)]
    sent = 0
    while sent < n_packets:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.settimeout(_WAIT_S)
            link.connect(os.fspath(path))
            for _ in range(min(_PER_CONNECTION, n_packets - sent)):
                sent += 1
                owner, key = chance.choice(owners), f"k{chance.randrange(8)}"
                legal = chance.choice((packets.Put(owner, key, b"m"), packets.Drop(owner, key), packets.Find(owner)))
                data = mutated(chance, msgspec.msgpack.encode(legal), 2) or b"\0"
                fds = [0] * chance.choice((0, 0, 1, 1, 2, 20)) if isinstance(legal, packets.Put) else []
                try:
                    socket.send_fds(link, [data], fds)
                    _answers(link)
                except TimeoutError:
                    raise
                except OSError:
                    break  # it was cut, as it may be
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(os.fspath(path))
        for owner in owners:
            packets.send_packet(link, packets.Drop(owner))
            link.recv(packets.MAX_PACKET_BYTES)


def _answers(link: socket.socket) -> None:
    """Read what has been answered, and close what came with it."""
    link.setblocking(False)
    try:
        while True:
            data, fds, _, _ = socket.recv_fds(link, packets.MAX_PACKET_BYTES, 64)
            for fd in fds:
                os.close(fd)
            if not data:
                return
    except BlockingIOError:
        pass
    finally:
        link.settimeout(_WAIT_S)


def fuzz_forwarded(chance: random.Random, path: Path, n_requests: int) -> None:
    """Send mutated HTTP requests to the socket over which gateways forward calls."""
    for _ in range(n_requests):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_WAIT_S)
            connection.connect(os.fspath(path))
            try:
                connection.sendall(http_request(chance))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass
            except TimeoutError:
                raise
            except OSError:
                pass


def fuzz_all(seed: int, run_dir: Path, report: StatusReport, n_messages: int) -> None:
    """So many messages to all sockets of the run directory but the public ones, in equal parts."""
    found = inboxes(run_dir, report)
    stores = [path for path in (Path(custodian_socket(run_dir)), vault_path(run_dir, 0)) if path.exists()]
    forwarding = [path for path in (http_socket(run_dir, 0), http_socket(run_dir, 1)) if path.exists()]
    each = n_messages // (len(found) + len(stores)) + 1
    for inbox in found:
        fuzz_inbox(random.Random(f"{seed} {inbox.name}"), inbox, each, found[:-1])
    for path in stores:
        fuzz_descriptor_store(random.Random(f"{seed} {path.name}"), path, each)
    for path in forwarding:
        fuzz_forwarded(random.Random(f"{seed} {path.name}"), path, max(20, each // 20))
