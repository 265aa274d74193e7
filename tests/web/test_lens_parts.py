"""Parts of the lens: images, messages, commands, history and backpressure."""

import asyncio

import cv2
import numpy as np
import pytest

from c2d.errors import UserError
from c2d.runs.confined import Root
from c2d.web.lens import connection, messages
from c2d.web.lens.commands import MAX_BYTES, parse
from c2d.web.lens.connection import History, LensConnection


@pytest.mark.parametrize("colors", [1, 2, 200, 256, 257, 40_000])
def test_images_are_lossless_png(colors):
    rng = np.random.default_rng(colors)
    palette = rng.integers(0, 256, (colors, 3), dtype=np.uint8)
    picture = palette[rng.integers(0, colors, (210, 161))]
    data = messages.encode_png(picture)
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]  # BGR
    np.testing.assert_array_equal(decoded, picture)


def test_messages_keep_every_bit():
    rng = np.random.default_rng(0)
    arrays = {"a": rng.normal(size=(3, 5)).astype(np.float32), "empty": np.zeros((0,), np.float32)}
    message = messages.pack({"kind": "x", "name": "φ"}, {"first": b"123", **arrays, "last": b""})
    header, parts = messages.unpack(message)
    assert header == {"kind": "x", "name": "φ"} and parts["first"] == b"123" and parts["last"] == b""
    for name, array in arrays.items():
        assert parts[name].tobytes() == array.tobytes() and parts[name].shape == array.shape


def test_what_is_not_finite_becomes_null():
    header, parts = messages.unpack(
        messages.pack({"a": [1.5, float("nan"), (float("inf"), {"b": -float("inf")})]}, {"x": np.array([np.nan, 1.0])})
    )
    assert header == {"a": [1.5, None, [None, {"b": None}]]}
    assert np.isnan(parts["x"][0]) and parts["x"][1] == 1.0  # laws are sent as computed


GOOD = '{"do": "open", "agents": [["a", "weights"]], "drive": "first", "seed": 0, "epsilon": 0.1, "start": null}'
NEW = '{"do": "new", "seed": 2147483647, "start": 4095}'


@pytest.mark.parametrize(
    "text",
    [GOOD, '{"do": "play"}', '{"do": "speed", "value": 0}', NEW, GOOD.replace("null", "0"),
     '{"do": "criteria", "names": ["mean", "cvar:0.1"], "by": 1}', '{"do": "ack"}'],
)  # fmt: skip
def test_commands(text):
    assert parse(text)["do"] in text


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "[]", "null", "1", '"play"', "{}", '{"do": 1}', '{"do": "stop"}', '{"do": "__init__"}',
     '{"do": ["play"]}',
     '{"do": "play", "more": 1}', '{"do": "speed"}', '{"do": "speed", "value": "1"}', '{"do": "speed", "value": -1}',
     '{"do": "speed", "value": NaN}', '{"do": "speed", "value": 1e-300}', '{"do": "speed", "value": 0.009}',
     '{"do": "speed", "value": 1' + "0" * 400 + "}", '{"do": "epsilon", "value": 1' + "0" * 400 + "}",
     '{"do": "speed", "value": Infinity}', '{"do": "speed", "value": 1e9}',
     '{"do": "epsilon", "value": 1.1}', '{"do": "epsilon", "value": true}', NEW.replace("2147483647", "-1"),
     NEW.replace("2147483647", "1.5"), NEW.replace("2147483647", "2147483648"), NEW.replace("4095", "4096"),
     NEW.replace("4095", "-1"), NEW.replace("4095", "true"), NEW.replace("4095", "1.0"), NEW.replace("4095", '"1"'),
     NEW.replace(', "start": 4095', ""), GOOD.replace(', "start": null', ""),
     '{"do": "criteria", "names": [], "by": 0}',
     '{"do": "criteria", "names": [1], "by": 0}',
     '{"do": "criteria", "names": ["mean"], "by": -1}', '{"do": "criteria", "names": ["' + "x" * 41 + '"], "by": 0}',
     GOOD.replace('["a", "weights"]', ""), GOOD.replace('["a", "weights"]', '["a"]'), GOOD.replace('"weights"', "1"),
     GOOD.replace('["a", "weights"]', '["a", "w"], ["a", "w"], ["a", "w"]'), GOOD.replace("first", "third"),
     GOOD.replace("first", "root"), GOOD[:-1] + ', "root": "/"}', GOOD[:-1] + ', "trusted": ["os:system"]}',
     "[" * 5_000, b"binary", "x" * (MAX_BYTES + 1)],
)  # fmt: skip
def test_malformed_messages_get_an_error(text):
    with pytest.raises(UserError) as complaint:
        parse(text)
    assert 10 < len(str(complaint.value)) < 400 and "\n" not in str(complaint.value)


def moment(n: int, size: int = 10) -> bytes:
    return messages.pack({"kind": "moment", "n": n}, {"0.picture": b"x" * size})


def numbers(received) -> list[int]:
    return [messages.unpack(message)[0]["n"] for message in received]


def test_a_slow_page_gets_the_newest_and_nothing_piles_up():
    async def play():
        slow = LensConnection(Root("."))
        sent = []
        for n in range(10):
            slow._receive(moment(n))
            if n < connection._IN_FLIGHT:
                sent.append(await slow.next_message())
        assert numbers(sent) == [0, 1, 2, 3] and slow.dropped == 5
        with pytest.raises(asyncio.TimeoutError):  # four are under way: none is sent, however long it takes
            await asyncio.wait_for(slow.next_message(), 0.05)
        await slow.command('{"do": "ack"}')
        assert numbers([await slow.next_message()]) == [9]
        assert len(slow.history.moments) == 10  # all can be exported

    asyncio.run(play())


def test_answers_are_not_held_up_by_pictures():
    async def ask():
        slow = LensConnection(Root("."))
        for n in range(connection._IN_FLIGHT + 1):
            slow._receive(moment(n))
        await slow.command("nonsense")
        expected = {"kind": "error", "text": "a message is not JSON", "about": None}
        assert messages.unpack(await slow.next_message())[0] == expected
        for _ in range(1_000):
            await slow.command("nonsense")
        assert len(slow._waiting) <= 64

    asyncio.run(ask())


def test_history_is_bounded(monkeypatch):
    monkeypatch.setattr(connection, "_HISTORY_COUNT", 100)
    monkeypatch.setattr(connection, "_HISTORY_BYTES", 50_000)
    history = History()
    for n in range(300):
        history.add(moment(n))
    assert numbers(history.moments) == list(range(200, 300))
    for n in range(100):
        history.add(moment(n, size=10_000))
    assert sum(map(len, history.moments)) <= 50_000 and numbers(history.moments)[-1] == 99
    history.restart(b"opened")
    assert not history.moments and history._bytes == 0
