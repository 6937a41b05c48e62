"""Hostile peers from a seed: random bytes, mutated frames, odd requests, and every way of leaving."""

import json
import os
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kctl_agent.rpc.wire import MAX_REQUEST_BYTES

PEER_SECONDS: Final = 5.0
ODD_VALUES: Final[tuple[object, ...]] = (
    *(None, True, -1, 0, 1, 2, 1 << 70, 0.5),
    *("", "ping", "getPing", "__class__", "x" * 300),
    *([], {}, {"a": 1}),
)


def attack(path: Path, valid: bytes, seed: int, count: int) -> None:
    """Sends `count` frames made from the seed, and one valid frame. A connection gets several frames, and some replies
    are read."""
    rng = random.Random(seed)
    sent = 0
    while sent < count:
        with socket.socket(socket.AF_UNIX) as peer, suppress(ConnectionError, TimeoutError):
            peer.settimeout(PEER_SECONDS)
            peer.connect(os.fsencode(path))
            for _ in range(rng.randrange(1, 30)):
                sent += 1
                peer.sendall(rng.choice(list(KINDS.values()))(rng, valid))
                if rng.random() < 0.1:
                    peer.setblocking(False)
                    with suppress(BlockingIOError):
                        peer.recv(1 << 16)
                    peer.settimeout(PEER_SECONDS)
            if rng.random() < 0.5:
                peer.shutdown(socket.SHUT_WR)
                while rng.random() < 0.9 and peer.recv(1 << 16):
                    pass


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _mutated(rng: random.Random, valid: bytes) -> bytes:
    frame = bytearray(valid)
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(frame))
        match rng.randrange(3):
            case 0:
                frame[place] = rng.randrange(256)
            case 1:
                del frame[place]
            case _:
                frame.insert(place, rng.randrange(256))
    return bytes(frame)


def _deep(rng: random.Random, _valid: bytes) -> bytes:
    depth = rng.randrange(10, 20_000)
    return framed(b'{"params":' + b"[" * depth + b"]" * depth + b"}")


def _odd_request(rng: random.Random, _valid: bytes) -> bytes:
    names = ["v", "id", "role", "rpc", "method", "params", "deadline_ms"]
    kept = rng.sample(names, rng.randrange(1, len(names) + 1))
    return framed(json.dumps({name: rng.choice(ODD_VALUES) for name in kept}).encode())


def _odd_number(rng: random.Random, _valid: bytes) -> bytes:
    number = rng.choice([b"NaN", b"-Infinity", b"1e999", b"-0", b"9" * 5000])
    return framed(b'{"role":0,"rpc":"ping","method":"getPing","deadline_ms":' + number + b"}")


KINDS: Final[dict[str, Callable[[random.Random, bytes], bytes]]] = {
    "random bytes": lambda rng, _: rng.randbytes(rng.randrange(1, 200)),
    "a random body": lambda rng, _: framed(rng.randbytes(rng.randrange(200))),
    "a mutated frame": _mutated,
    "a mutated body": lambda rng, valid: framed(_mutated(rng, valid)[4:]),
    "half a frame": lambda rng, valid: valid[: rng.randrange(1, len(valid))],
    "a valid frame": lambda _, valid: valid,
    "a huge length": lambda rng, _: rng.randrange(MAX_REQUEST_BYTES + 1, 1 << 32).to_bytes(4) + rng.randbytes(20),
    "deep nesting": _deep,
    "an odd request": _odd_request,
    "an odd number": _odd_number,
}
