"""Every ZeroMQ option of the project, each with its reason. No other file creates sockets."""

from __future__ import annotations

import zmq

INTERNAL_FRAME_BYTES = 64 << 20  # above the largest plan: 4 M tokens of int32 in a frame of arrays
PUBLIC_FRAME_BYTES = 16 << 20  # above the largest prompt that is accepted
_PIPE_MESSAGES = 1024 + 64  # credit window and slack: a healthy link never reaches it
_PUBLIC_SENDS_MESSAGES = 512  # per client: any process can connect here, and frames may be large
# No receiving limit: libzmq 4.3.5 stops reading from a connection whose pipe is full, and may end the process when that
# connection ends: "Assertion failed: !_io_error" if a PING was unread, "Assertion failed: _input_stopped" if the next
# connection is made before the pipe is read (libzmq issue 3937). Credits bound what actors send each other; a gateway reads
# whatever has come at every turn of its loop, and counts what it keeps (BodyBudget, RefusalQueue); a client gets what it has
# asked for.
_TAKES_MESSAGES = 0


def _common(socket: zmq.Socket, max_frame_bytes: int, sends_messages: int = _PIPE_MESSAGES) -> zmq.Socket:
    socket.setsockopt(zmq.LINGER, 0)  # close() never waits; requests that must survive are in the journal
    socket.setsockopt(zmq.SNDHWM, sends_messages)  # credits stop a sender long before this
    socket.setsockopt(zmq.RCVHWM, _TAKES_MESSAGES)
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)  # a larger frame ends the connection instead of the memory
    socket.setsockopt(zmq.HANDSHAKE_IVL, 2_000)  # half-open handshakes release their descriptors
    socket.setsockopt(zmq.RECONNECT_IVL, 10)  # a restarted peer is back within milliseconds
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)  # but a dead peer is not tried too often
    socket.setsockopt(zmq.BACKLOG, 512)  # a burst of connects is not refused
    return socket


def inbox(context: zmq.Context, endpoint: str) -> zmq.Socket:
    """A bound ROUTER: an actor's inbox."""
    return _bound(_common(context.socket(zmq.ROUTER), INTERNAL_FRAME_BYTES), endpoint)


def public_router(context: zmq.Context, endpoint: str) -> zmq.Socket:
    """A bound ROUTER: a gateway's public ZeroMQ socket."""
    return _bound(_common(context.socket(zmq.ROUTER), PUBLIC_FRAME_BYTES, _PUBLIC_SENDS_MESSAGES), endpoint)


def bind_encrypted(socket: zmq.Socket, endpoint: str, secret_key: str) -> None:
    """Bind a socket to one more endpoint, at which clients must use CURVE and know the public key. Its other endpoints stay as
    they are: ZeroMQ gives an endpoint the options of the moment of its bind. Raises: zmq.ZMQError."""
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret_key.encode("ascii"))
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    try:
        socket.bind(endpoint)
    finally:
        socket.setsockopt(zmq.CURVE_SERVER, 0)  # an endpoint that is bound later, or again, is not encrypted


def _bound(socket: zmq.Socket, endpoint: str) -> zmq.Socket:
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a credit without a receiver is an error, not a silent drop
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)  # no peer takes over the identity of a living one
    try:
        socket.bind(endpoint)
    except zmq.ZMQError:  # a full disk; an open socket would keep its context, and so this process, from ending
        socket.close()
        raise
    return socket


def outgoing(context: zmq.Context, endpoint: str, identity: bytes) -> zmq.Socket:
    """A connected DEALER of an actor. `identity` is unique per link; with b"" each connection gets a fresh one from the other
    side. What comes back must be messages of one frame, see `client`."""
    socket = _common(context.socket(zmq.DEALER), INTERNAL_FRAME_BYTES)
    if not endpoint.startswith("ipc://"):  # on one host the kernel tells, and outboxes ask who is silent
        _watch_peer(socket)
    if identity:
        socket.setsockopt(zmq.ROUTING_ID, identity)
    socket.setsockopt(zmq.IMMEDIATE, 1)  # messages wait on our side, where they are counted, until the connection is made
    socket.connect(endpoint)
    return socket


def client(context: zmq.Context, server_key: str = "") -> zmq.Socket:
    """A DEALER of a client, not connected yet, so that its monitor sees the first connection too. The gateway chooses its
    identity. `server_key`: the public key of a server that uses CURVE; the socket gets a pair of its own that nobody knows.

    It has no IMMEDIATE: with it, libzmq 4.3.5 drops the connection's pipe as soon as the peer has gone, and ends the process if
    only the first frame of a message has been read ("Assertion failed: !_more", fq.cpp). Gateways send messages of two frames.
    """
    socket = _common(context.socket(zmq.DEALER), PUBLIC_FRAME_BYTES)
    _watch_peer(socket)
    if server_key:
        public, secret = zmq.curve_keypair()
        socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        socket.setsockopt(zmq.CURVE_SERVERKEY, server_key.encode("ascii"))
    return socket


def _watch_peer(socket: zmq.Socket) -> None:
    """Let ZeroMQ ask the peer once a second whether it is there. That wakes the I/O threads of both."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, 1_000)  # a vanished machine is noticed even without traffic
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5_000)
