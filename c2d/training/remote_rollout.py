"""Play by actors in other processes or on other machines, behind the interface of `Rollout`.

    actors     play block 1        play block 2        play block 3        ...
    learner        (waits)         learns block 1      learns block 2      ...
    weights    of the beginning    of the beginning    after block 1       ...

A block is `weights_period` steps of each environment of an actor. While the learner takes in one, round by round, with
the updates that are due, the actors play the next, with the weights from before the one that it takes in.

Synchronous: all actors exchange a block at the same time. What a block holds depends on the state of its actor before
it and on weights that nobody's speed decides. So every run with the same seed is the same; an actor that dies is
replaced by one that plays its block again; and a checkpoint needs the states before the block that is taken in, the
weights for it and for the next, and how many of its rounds were taken: a resumed run plays both blocks again.

Asynchronous: each actor exchanges a block as soon as the learner has taken in the one before it. Nobody waits for a
slow actor, and one that dies is replaced by one that begins new games.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from c2d.agents.learner import Learner
from c2d.agents.rollout import Stream, Transition
from c2d.cluster.address import is_remote, prepare_ray_import
from c2d.config import Config, to_json
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.formatting import duration
from c2d.training.remote_actor import ActorRequest, Block, Order, State, Weights, unpacked
from c2d.training.streams import epsilons_of
from c2d.types import ResetFrame
from c2d.user_code import TRUSTED

_PATIENCE = 60.0  # seconds until an actor that does not answer is reported
_MOST_DEATHS = 3  # of an actor in succession, without a block between
_TICK = 0.2  # seconds between looks at requests to stop


class ActorLost(NamedTuple):
    """Instead of a block: the process or the node of the actor is gone."""

    reason: str


class Transport(Protocol):
    """Processes of actors, and what is sent to them and back."""

    def connect(self) -> None:
        """UserError if there can be no actors."""
        ...

    def start(self, request: ActorRequest) -> None:
        """A new process for an actor; one that it had before ends."""
        ...

    def share(self, weights: Weights) -> Any:
        """A handle of weights for all orders."""
        ...

    def send(self, actor: int, order: Order, weights: Any) -> None:
        """Hand an order to an actor. `weights`: a handle, or None."""
        ...

    def receive(self, seconds: float) -> list[tuple[int, Block | ActorLost]]:
        """Answers that have arrived; waits for the first at most so long."""
        ...

    def close(self) -> None: ...


class Shared(NamedTuple):
    """Weights that actors play with."""

    arrays: Weights
    updates: int  # after which the learner had them
    handle: Any


@dataclass
class _Seat:
    """One actor as the learner sees it."""

    number: int
    start: State | None = None  # before the block that is taken in; None: as the seed makes it
    rounds: list[list[Transition]] = field(default_factory=list)  # of this block
    taken: int = 0  # of these rounds
    updates: int = 0  # of the weights that chose their actions
    end: State | None = None  # after this block
    arrived: Block | None = None  # the next one
    order: Order | None = None  # for the next one; None: it has arrived, or none was given
    weights: Shared | None = None  # for the next one
    started: bool = False  # it has a process
    alive: bool = False  # that has answered
    fresh: bool = True  # asynchronous: new games begin with the next order
    life: int = 0  # asynchronous: how often it began again
    deaths: int = 0  # since its last block
    since: float = 0.0  # when the order was sent
    reported: bool = False  # that it does not answer

    @property
    def used_up(self) -> bool:
        return self.taken == len(self.rounds)


class RemoteRollout:
    """Environments of actors that advance with the learner. See `Rollout` for what its methods do."""

    streams: Sequence[Stream] = ()  # those of this process

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        learner: Learner,
        progress: Callable[[], int | None],  # training steps made; None while the replay is filled at random
        stopped: Callable[[], bool],  # whether the run is to end: then nobody is waited for
        notices: list[tuple[str, bool]],  # where texts for people go, and whether they are warnings
        transport: Transport | None = None,  # None: Ray
    ) -> None:
        self.config, self.spec, self.learner = config, spec, learner
        self._progress, self._stopped, self._notices, self._transport = progress, stopped, notices, transport
        self._connected = False
        self.synchronous = config.actor.mode == "synchronous"
        self.seats = [_Seat(number) for number in range(config.actors)]
        self.outside: str | None = None
        self.round_steps = 0
        self._inside = False  # a round is being handed out
        self.ages = 0.0  # updates made since the weights of the last round, summed over its steps
        self._waited, self._clock = 0.0, time.monotonic()
        self._asked = learner.acting.memory > 0  # a network that remembers is asked about random steps too
        self._newest: Shared | None = None  # weights that were sent last
        # synchronous:
        self._block = -1  # number of the block that is taken in
        self._skipped = 0  # of its rounds, those that were taken in before the run was resumed
        self._skip = 0  # the same of the next block
        self._resumed: dict[str, Any] | None = None  # a checkpoint, until its block is here again
        self._playing: Shared | None = None  # with which it was played; None: at random
        self._following: tuple[Weights, int] | None = None  # of a checkpoint: weights for the block after it
        # asynchronous:
        self._since_shared = 0  # steps since weights were sent

    # ------------------------------------------------------------ as Rollout

    def connect(self) -> None:
        """Reach Ray. UserError if that is not possible, or if there is no room for the actors."""
        if self._transport is None:
            address = self.config.address
            prepare_ray_import(address)
            if address is not None and is_remote(address):
                text = f"anyone who can reach {address} can run code on that cluster; keep it private"
                self._notices.append((text, True))
            from c2d.training.ray_transport import RayTransport

            self._transport = RayTransport(self.config, self._notices)
        self._transport.connect()
        self._connected = True

    def reset(self) -> list[tuple[int, ResetFrame]]:
        """New games begin with later orders: their first frames come with their first steps."""
        for seat in self.seats:
            seat.fresh = True
        return []

    @property
    def at_rest(self) -> bool:
        return not self._inside

    def launch(self, epsilon: float | Sequence[float]) -> None:
        """Nothing to do: actors play while the learner learns."""

    def step(self, epsilon: float | Sequence[float]) -> Iterator[Transition]:
        """The next step of every environment whose actor has sent it; of none if the run is to end before one comes.

        ε is not this one, but that of the time when the actors were ordered to play.
        """
        self.round_steps, self.ages = 0, 0.0
        ready, each = self._ready(), self.config.recipe.envs
        self._inside = bool(ready)
        for seat in ready:
            age = self.learner.updates - seat.updates
            for transition in seat.rounds[seat.taken]:
                self.round_steps += 1
                self.ages += age
                yield transition._replace(stream=seat.number * each + transition.stream)
            seat.taken += 1
        self._since_shared += self.round_steps
        self._inside = False

    def measured(self) -> dict[str, float]:
        """For what is measured of an iteration: shares since the last call."""
        now = time.monotonic()
        share = 1.0 - self._waited / max(now - self._clock, 1e-9)
        self._waited, self._clock = 0.0, now
        return {"learner_share": min(max(share, 0.0), 1.0), "actors_alive": sum(seat.alive for seat in self.seats)}

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport, self._connected = None, False

    # ------------------------------------------------------------ exchange

    def _ready(self) -> list[_Seat]:
        """Seats with a round to hand out. Waits for it, unless the run is to end: then there may be none."""
        started = time.monotonic()
        if not self._connected:
            self.connect()
        if not self.seats[0].started:
            self._begin()
        while True:
            (self._exchange_together if self.synchronous else self._exchange_each)()
            ready = [seat for seat in self.seats if not seat.used_up]
            if ready or self._stopped():
                self._waited += time.monotonic() - started
                return ready
            self._collect(_TICK)
            self._report_silence()

    def _begin(self) -> None:
        """Actors that have not played yet get their first orders."""
        for seat in self.seats:
            self._start(seat)
        if not self.synchronous:
            for seat in self.seats:
                self._order_more(seat)
            return
        playing = self._playing
        if playing is not None:  # that of a checkpoint, which was not sent yet
            playing = self._share(playing.arrays, playing.updates)
        elif self._asked:
            playing = self._share(*self._weights())
        self._order_together(self._block + 1, playing, self._skip)

    def _exchange_together(self) -> None:
        """Synchronous: when every actor has played its next block, take these in and let all play on."""
        self._collect(0.0)
        while all(seat.used_up and seat.arrived is not None for seat in self.seats):
            self._playing, self._resumed = self._newest, None
            self._skipped, self._skip = self._skip, 0
            for seat in self.seats:
                self._take_in(seat)
            self._block += 1
            saved, self._following = self._following, None
            shared = None
            if self._asked or not self._plan(self._block + 1).random:
                shared = self._share(*(saved or self._weights()))
            self._order_together(self._block + 1, shared)

    def _exchange_each(self) -> None:
        """Asynchronous: take in the next block of every actor whose last one is used up, and let it play on."""
        self._collect(0.0)
        for seat in self.seats:
            if seat.used_up and seat.arrived is not None:
                self._take_in(seat)
                self._order_more(seat)

    def _take_in(self, seat: _Seat) -> None:
        block, seat.arrived = seat.arrived, None
        assert block is not None
        if block.failure is not None:
            raise UserError(block.failure)
        for reason in block.mismatches:
            self._notices.append((f"not exact: actor {seat.number}, {reason}; a new game begins", True))
        self.outside = self.outside or block.outside
        seat.start, seat.end = seat.end, block.state
        seat.rounds, seat.taken = unpacked(block.packed, self.spec), 0
        seat.updates = self.learner.updates if seat.weights is None else seat.weights.updates

    # ------------------------------------------------------------ orders

    def _plan(self, block: int) -> _Plan:
        """Synchronous: what every actor plays in a block. First the random history, then training, without end."""
        period, envs = self.config.actor.weights_period, self.config.streams
        history = -(-self.config.recipe.schedule.random_history // envs)  # rounds
        blocks = -(-history // period)
        if block < blocks:
            return _Plan(min(period, history - block * period), True, block == 0, 0)
        return _Plan(period, False, block == blocks, (block - blocks) * period * envs)

    def _order_together(self, block: int, shared: Shared | None, skip: int = 0) -> None:
        plan, self._newest = self._plan(block), shared
        for seat, epsilon in zip(self.seats, self._epsilons(plan.step), strict=True):
            order = Order(plan.rounds, 1.0 if plan.random else epsilon, plan.fresh, skip=skip)
            self._send(seat, order._replace(state=seat.end) if not seat.alive else order, shared)

    def _order_more(self, seat: _Seat) -> None:
        """Asynchronous: the next block of one actor, with the newest weights, which change once in a period."""
        step, period = self._progress(), self.config.actor.weights_period
        epsilon, shared = 1.0, None
        if step is not None:
            epsilon = self._epsilons(step)[seat.number]
        if self._asked or step is not None:
            if self._newest is None or self._since_shared >= period:
                self._newest, self._since_shared = self._share(*self._weights()), 0
            shared = self._newest
        self._send(seat, Order(period, epsilon, seat.fresh), shared)
        seat.fresh = False

    def _send(self, seat: _Seat, order: Order, shared: Shared | None) -> None:
        assert self._transport is not None
        seat.order, seat.weights, seat.since, seat.reported = order, shared, time.monotonic(), False
        self._transport.send(seat.number, order, None if shared is None else shared.handle)

    def _epsilons(self, step: int) -> list[float]:
        """Of each actor."""
        return epsilons_of(self.config, step)[:: self.config.recipe.envs]

    def _weights(self) -> tuple[Weights, int]:
        """Those of the learner now, and the updates that it has made."""
        state = self.learner.acting.state_dict()
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}, self.learner.updates

    def _share(self, arrays: Weights, updates: int) -> Shared:
        assert self._transport is not None
        return Shared(arrays, updates, self._transport.share(arrays))

    # ------------------------------------------------------------ answers

    def _collect(self, seconds: float) -> None:
        """Answers of actors; waits for the first at most so long."""
        assert self._transport is not None
        for number, answer in self._transport.receive(seconds):
            seat = self.seats[number]
            if isinstance(answer, ActorLost):
                self._replace(seat, answer.reason)
            else:
                seat.arrived, seat.order, seat.alive, seat.deaths = answer, None, True, 0

    def _replace(self, seat: _Seat, reason: str) -> None:
        """A new process for an actor whose own is gone."""
        seat.alive, seat.deaths = False, seat.deaths + 1
        if seat.deaths > _MOST_DEATHS:
            raise UserError(f"actor {seat.number} died {seat.deaths} times in succession: {reason}")
        how = "it is brought back to the same state" if self.synchronous else "its successor begins new games"
        self._notices.append((f"actor {seat.number}: {reason}; {how}", True))
        order, shared = seat.order, seat.weights
        if self.synchronous:
            self._start(seat)
            if order is not None:
                self._send(seat, order._replace(state=seat.end), shared)
            return
        seat.life, seat.fresh = seat.life + 1, True
        self._start(seat)
        if order is not None:
            self._order_more(seat)

    def _start(self, seat: _Seat) -> None:
        assert self._transport is not None
        seat.started = True
        trusted = tuple(sorted(TRUSTED))
        self._transport.start(ActorRequest(to_json(self.config), seat.number, seat.life, self.spec, trusted))

    def _report_silence(self) -> None:
        """Say, once for each order, that an actor does not answer."""
        now = time.monotonic()
        for seat in self.seats:
            if seat.order is not None and not seat.reported and now - seat.since >= _PATIENCE:
                seat.reported = True
                self._notices.append(
                    (
                        f"actor {seat.number} has not answered for {duration(_PATIENCE)}: it may wait for a free CPU, "
                        "or an environment may hang; Ctrl-C ends the run, which can be resumed",
                        True,
                    )
                )

    # ------------------------------------------------------------ for checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Synchronous: what is needed to play the block that is taken in, and the next, again.

        Asynchronous: how often the actors began again. The games are there for people to look at.
        """
        kind: dict[str, Any] = {"mode": self.config.actor.mode, "lives": [seat.life for seat in self.seats]}
        if self._resumed is not None:
            return {name: self._resumed[name] for name in ("streams", "actors")}
        if not self.synchronous:
            return {"streams": _joined([seat.end for seat in self.seats]), "actors": kind}
        starts = [seat.start for seat in self.seats]
        following = None if self._newest is None else (self._newest.arrays, self._newest.updates)
        own: dict[str, Any] = {
            "block": self._block,
            "taken": self._skipped + self.seats[0].taken,
            "states": [None if each is None else {**each, "streams": None} for each in starts],
            "playing": None if self._playing is None else self._playing[:2],
            "following": following or self._following,
        }
        weights = {name: own[name] and {"arrays": own[name][0], "updates": own[name][1]} for name in _WEIGHTS}
        return {"streams": _joined(starts), "actors": kind | own | weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Order the same blocks again with the first round; games that cannot be continued are reported then."""
        saved, streams, envs = state.get("actors"), state["streams"], self.config.recipe.envs
        if not isinstance(saved, dict) or saved["mode"] != self.config.actor.mode:
            raise ValueError(f"it is not one of a run with {self.config.actor.mode} actors")
        lives = saved["lives"]
        if len(lives) != len(self.seats) or any(type(life) is not int or life < 0 for life in lives):
            raise ValueError(f"it has {len(lives)} actors, the run {len(self.seats)}")
        if not self.synchronous:
            for seat, life in zip(self.seats, lives, strict=True):
                seat.life = life + 1
            return
        block, taken = saved["block"], saved["taken"]
        if type(block) is not int or type(taken) is not int or not 0 <= taken <= self._plan(max(block, 0)).rounds:
            raise ValueError(f"its actors are at round {str(taken)[:40]} of block {str(block)[:40]}")
        if block < 0:
            return
        self._block, self._skip, self._resumed = block - 1, taken, state
        for number, (seat, each) in enumerate(zip(self.seats, saved["states"], strict=True)):
            if each is not None:
                seat.end = {**each, "streams": streams[number * envs : (number + 1) * envs]}
        playing, following = (self._checked(saved[name]) for name in _WEIGHTS)
        self._playing = None if playing is None else Shared(*playing, None)
        self._following = following

    def _checked(self, saved: dict[str, Any] | None) -> tuple[Weights, int] | None:
        """Weights of a checkpoint, if they fit the network."""
        if saved is None:
            return None
        own, arrays = self.learner.acting.state_dict(), saved["arrays"]
        shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
        if shapes != {name: array.shape for name, array in arrays.items()}:
            raise ValueError("the weights of its actors do not fit the network")
        return arrays, int(saved["updates"])


class _Plan(NamedTuple):
    """What actors play in a block."""

    rounds: int
    random: bool  # every action is drawn
    fresh: bool  # new games begin
    step: int  # training steps before it


_WEIGHTS = ("playing", "following")  # of a checkpoint: with which the block was played, and the next one is


def _joined(states: Sequence[State | None]) -> list[dict[str, Any]]:
    """The games of all actors; none before all are known."""
    known = [state for state in states if state is not None]
    return [stream for state in known for stream in state["streams"]] if len(known) == len(states) else []
