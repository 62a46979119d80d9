"""The control protocol: bounded, plain, and clear about what is wrong."""

import os
import re
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay import errors, protocol
from shmreplay.protocol import Deadline, ProtocolError, pack, receive_message, send_message, unpack

Pair = tuple[socket.socket, socket.socket]

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture
def pair() -> Iterator[Pair]:
    a, b = socket.socketpair()
    with a, b:
        yield a, b


def body(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


@given(st.dictionaries(st.text(), plain, max_size=5))
def test_a_message_comes_back_as_it_was(message: dict[str, object]) -> None:
    packed = pack(message)
    assert struct.unpack("<I", packed[:4])[0] == len(packed) - 4
    assert unpack(packed[4:]) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_protocol_error(data: bytes) -> None:
    try:
        message = unpack(data)
    except ProtocolError:
        return
    assert isinstance(message, dict)
    assert unpack(pack(message)[4:]) == message or message != message  # NaN inside


def nested(depth: int, wrap: Callable[[object], object]) -> object:
    value: object = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}])
def test_nesting_is_bounded(wrap: Callable[[object], object]) -> None:
    unpack(body({"x": nested(protocol.MAX_NESTING - 1, wrap)}))
    with pytest.raises(ProtocolError, match="nested deeper than 64 levels"):
        unpack(body({"x": nested(protocol.MAX_NESTING, wrap)}))


def test_nesting_of_a_hundred_thousand_levels_is_refused_without_recursion() -> None:
    with pytest.raises(ProtocolError):
        unpack(b"\x91" * 100_000 + b"\x01")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a msgpack message"),
        (b"\xc1", "not a msgpack message"),
        (b"\x81\xa1a", "not a msgpack message"),
        (body({"a": 1}) + b"\x00", "not a msgpack message"),
        (b"\x81\xa1\xff\x01", "not a msgpack message"),  # a key that is not UTF-8
        (body([1, 2]), "a message is a map, got list"),
        (body(b"hello"), "a message is a map, got bytes"),
        (b"\x81\x01\x02", "int is not allowed for map key"),
        (body({b"a": 1}), "a map key of type bytes; keys are str"),
        (body({"a": msgpack.ExtType(5, b"x")}), "extension type 5"),
        (body({"a": msgpack.Timestamp(1)}), "a value of type Timestamp"),
    ],
)
def test_what_is_no_plain_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        unpack(data)


def test_a_message_of_too_many_values_is_refused_before_it_fills_memory() -> None:
    many = body({"a": [[0] * 2**18] * 5})
    with pytest.raises(ProtocolError, match="more than 1048576 values"):
        unpack(many)
    with pytest.raises(ProtocolError, match="exceeds max_array_len"):
        unpack(body({"a": [0] * (2**20 + 1)}))


@pytest.mark.long
def test_decoding_ends_at_the_value_too_many_and_not_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty map is one byte on the wire and 64 in memory: 16 MiB of them would be a gigabyte."""
    many = body({"a": [[{}] * 1000] * 100})
    tracemalloc.start()
    try:
        whole = unpack(many)
        taken = tracemalloc.get_traced_memory()[1]
        del whole
        monkeypatch.setattr(protocol, "MAX_VALUES", 1000)
        tracemalloc.reset_peak()
        with pytest.raises(ProtocolError, match="more than 1000 values"):
            unpack(many)
        assert tracemalloc.get_traced_memory()[1] < taken / 10
    finally:
        tracemalloc.stop()


def test_a_header_above_the_limit_is_refused_with_both_numbers() -> None:
    header = struct.pack("<I", protocol.MAX_MESSAGE_BYTES + 1)
    with pytest.raises(ProtocolError, match="16777217 bytes was announced, at most 16777216"):
        protocol.body_length(header)
    assert protocol.body_length(struct.pack("<I", protocol.MAX_MESSAGE_BYTES)) == protocol.MAX_MESSAGE_BYTES
    with pytest.raises(ProtocolError, match="at most 4096"):
        protocol.body_length(struct.pack("<I", 4097), 4096)


def test_a_message_too_long_to_send_is_refused_before_sending() -> None:
    with pytest.raises(ValueError, match="at most 16777216"):
        pack({"data": bytes(protocol.MAX_MESSAGE_BYTES)})


def test_messages_cross_a_socket_whatever_the_pieces(pair: Pair) -> None:
    messages: list[dict[str, Any]] = [{"n": 1}, {"big": bytes(3 * 2**20)}, {"text": "ä" * 1000}]

    def send_all() -> None:
        for message in messages:
            send_message(pair[0], message, Deadline(100.0))

    sender = threading.Thread(target=send_all)
    sender.start()
    received = [receive_message(pair[1], Deadline(100.0))[0] for _ in messages]
    sender.join()
    assert received == messages


def test_descriptors_arrive_open_and_close_on_exec(pair: Pair) -> None:
    reader, writer = os.pipe()
    socket.send_fds(pair[0], [pack({"ok": True})], [reader, writer])
    message, fds = receive_message(pair[1], Deadline(5.0), max_fds=2)
    assert message == {"ok": True}
    assert len(fds) == 2
    assert not any(os.get_inheritable(fd) for fd in fds)
    os.write(fds[1], b"through")
    assert os.read(reader, 7) == b"through"
    protocol.close_all([*fds, reader, writer])


def test_descriptors_that_nobody_asked_for_are_not_kept(pair: Pair) -> None:
    before = set(os.listdir("/proc/self/fd"))
    reader, writer = os.pipe()
    socket.send_fds(pair[0], [pack({"ok": True})], [reader])
    protocol.close_all([reader, writer])
    assert receive_message(pair[1], Deadline(5.0)) == ({"ok": True}, [])
    assert set(os.listdir("/proc/self/fd")) == before


def test_descriptors_of_a_message_that_is_garbage_are_closed(pair: Pair) -> None:
    reader, writer = os.pipe()
    before = set(os.listdir("/proc/self/fd"))
    socket.send_fds(pair[0], [struct.pack("<I", 1) + b"\xc1"], [reader])
    with pytest.raises(ProtocolError):
        receive_message(pair[1], Deadline(5.0), max_fds=2)
    assert set(os.listdir("/proc/self/fd")) == before
    protocol.close_all([reader, writer])


def test_a_silent_peer_ends_a_receive_at_the_deadline(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        receive_message(pair[1], Deadline(0.01))
    pair[0].send(pack({"half": 1})[:6])
    with pytest.raises(TimeoutError):
        receive_message(pair[1], Deadline(0.01))


def test_a_peer_that_takes_nothing_ends_a_send_at_the_deadline(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        send_message(pair[0], {"big": bytes(8 * 2**20)}, Deadline(0.01))


def test_a_peer_that_leaves_in_the_middle_is_a_connection_error(pair: Pair) -> None:
    pair[0].send(pack({"half": 1})[:6])
    pair[0].close()
    with pytest.raises(ConnectionError):
        receive_message(pair[1], Deadline(5.0))


def test_a_deadline_counts_down_and_none_never_ends() -> None:
    never = Deadline(None)
    assert never.remaining_s() is None
    assert not never.is_over
    assert Deadline(0.0).is_over
    remaining_s = Deadline(1000.0).remaining_s()
    assert remaining_s is not None
    assert 0 < remaining_s <= 1000


@pytest.mark.parametrize(
    "error",
    [
        errors.TableNotFound("there is no table 'x'"),
        errors.SegmentFailed("broken"),
        errors.ShmReplayError("plain"),
        ValueError("bad value"),
        TypeError("bad type"),
        PermissionError("not you"),
    ],
)
def test_an_error_is_raised_on_the_other_side_as_itself(error: Exception) -> None:
    answer = unpack(pack(protocol.error_answer(error))[4:])
    with pytest.raises(type(error)) as raised:
        protocol.raise_answered_error(answer)
    assert type(raised.value) is type(error)
    assert str(raised.value) == str(error)


@pytest.mark.parametrize(
    ("error", "cls"),
    [
        (ProtocolError("garbage"), errors.ShmReplayError),
        (FileNotFoundError("gone"), OSError),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), ValueError),
        (KeyError("internal"), errors.InternalError),
        (RuntimeError("internal"), errors.InternalError),
    ],
)
def test_an_error_that_only_one_side_knows_is_raised_as_its_nearest_kin(error: Exception, cls: type[Exception]) -> None:
    with pytest.raises(cls) as raised:
        protocol.raise_answered_error(protocol.error_answer(error))
    assert type(raised.value) is cls
    assert str(error) in str(raised.value)


def test_the_text_of_an_error_is_bounded() -> None:
    answer = protocol.error_answer(ValueError("x" * 10_000_000))
    assert answer["message"] == "x" * protocol.MAX_TEXT + "…"


def test_an_answer_without_an_error_raises_nothing() -> None:
    protocol.raise_answered_error({"ok": True})


def test_an_address_is_a_path_with_or_without_unix() -> None:
    assert protocol.socket_path("/run/x.sock") == "/run/x.sock"
    assert protocol.socket_path("unix:/run/x.sock") == "/run/x.sock"
    assert protocol.socket_path("x.sock") == os.path.abspath("x.sock")


@pytest.mark.parametrize("address", ["", "unix:", "tcp://host:1", "/a\0b", "/" + "x" * 107])
def test_an_address_that_is_no_socket_path_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"not a socket path|Linux allows 107"):
        protocol.socket_path(address)


@pytest.mark.parametrize("address", ["localhost:8000", "10.0.0.1:80", ":7", "[::1]:80"])
def test_an_address_on_a_network_is_refused_with_what_to_give(address: str) -> None:
    text = f"address {address!r} looks like host:port; shmreplay has no network protocol: give a socket path such as"
    with pytest.raises(ValueError, match=re.escape(text)):
        protocol.socket_path(address)


def test_sockets_of_embedded_daemons_are_known_by_their_path() -> None:
    assert protocol.is_embedded_socket(protocol.embedded_socket_path("/tmp", "0123456789ab"))
    for path in ("/run/shmreplay/default.sock", "/tmp/shmreplay-mine/control.sock", "/tmp/control.sock"):
        assert not protocol.is_embedded_socket(path)


def test_an_address_of_another_type_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="address is a int"):
        protocol.socket_path(5)  # type: ignore[arg-type]


def test_default_addresses_come_from_the_environment_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHMREPLAY_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert protocol.default_socket_paths() == ["/run/user/7/shmreplay/default.sock", "/run/shmreplay/default.sock"]
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert protocol.default_socket_paths() == ["/run/shmreplay/default.sock"]
    monkeypatch.setattr("os.geteuid", lambda: 7)
    assert protocol.default_socket_paths() == ["/home/ada/.shmreplay/default.sock", "/run/shmreplay/default.sock"]
    monkeypatch.setenv("SHMREPLAY_SOCKET", "unix:/tmp/mine.sock")
    assert protocol.default_socket_paths() == ["/tmp/mine.sock"]
