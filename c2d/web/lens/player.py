"""One or two agents at play, step by step, each step with everything a person may want to see of it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from c2d.agents.agent import Distribution
from c2d.agents.build import assemble_learner
from c2d.agents.learner import Learner
from c2d.agents.rollout import Rollout, Stream, Transition, sight
from c2d.errors import UserError
from c2d.evaluation.risk import MEAN
from c2d.replay.buffer import Seen, learner_view
from c2d.returns.bellman import at_action
from c2d.returns.losses import cramer
from c2d.seeding import numpy_generator
from c2d.types import Batch, Phi, Sequences, Sight
from c2d.web.lens.load import Loaded, open_agent
from c2d.web.lens.messages import Parts, encode_png, pack


class Target(NamedTuple):
    """A law [M], atoms ascending, and how far the prediction is from it."""

    returns: np.ndarray
    atoms: np.ndarray  # φ-space
    probs: np.ndarray
    distance: float  # squared Cramér distance in φ-space


@torch.inference_mode()
def bellman_target(
    learner: Learner,
    obs: np.ndarray | Sight,
    action: int,
    seen: Seen,
    gamma: float,
    next_obs: np.ndarray,
    legal: np.ndarray | None = None,  # [A] bool at obs
    next_legal: np.ndarray | None = None,  # [A] bool at next_obs
) -> Target:
    """The recipe's own target for one step, whatever its n; normalization as in acting, since there is no batch."""
    now: Tensor | Sequences
    following: Tensor | Sequences
    if isinstance(obs, Sight):
        now = _both(obs, action, seen.reward, next_obs)
        following = now._replace(read=torch.tensor([1]))
    else:
        now, following = torch.from_numpy(obs[None]), torch.from_numpy(next_obs[None])
    batch = Batch(
        obs=now,
        action=torch.tensor([action]),
        reward=torch.tensor([seen.reward], dtype=torch.float32),
        discount=torch.tensor([0.0 if seen.terminal else gamma], dtype=torch.float32),
        next_obs=following,
        weight=torch.ones(1),
        indices=torch.zeros(1, dtype=torch.int64),
        legal=_row(legal),
        next_legal=_row(next_legal),
    )
    predicted = learner.online(batch.obs, "act")  # [1, A, N]
    target = learner.target(batch, predicted, acting=True)  # [1, M]
    distance = float(cramer(at_action(predicted, batch.action), target))
    atoms, order = target.atoms[0].sort()
    probs = target.log_probs[0].gather(-1, order).exp()
    return Target(learner.phi.back(atoms).numpy(), atoms.numpy(), probs.numpy(), distance)


def _both(now: Sight, action: int, reward: float, next_obs: np.ndarray) -> Sequences:
    """Two states of a game for networks with memory: both remember what the agent remembers. The first one is read."""
    return Sequences(
        burn_in=torch.from_numpy(now.obs[:0]),
        obs=torch.from_numpy(np.concatenate((now.obs, next_obs[None]))),
        action=torch.tensor([now.action[0], action]),
        reward=torch.tensor([now.reward[0], reward], dtype=torch.float32),
        memory=torch.from_numpy(now.memory),
        place=torch.arange(2),
        read=torch.tensor([0]),
        burn_ins=((1, 0),),
        steps=2,
    )


def _row(legal: np.ndarray | None) -> torch.Tensor | None:
    return None if legal is None else torch.from_numpy(legal[None])


Drive = Literal["first", "second", "each"]  # whose actions are taken; "each": two games from the same seed


class WatchedGame:
    """A running game. The same seed, start, ε and agent give the same game."""

    def __init__(self, loaded: Loaded, seed: int, start: int | None = None) -> None:
        """A new game, or with `start` the game of that environment of the checkpoint: UserError if it is not there."""
        rng = numpy_generator(seed, "lens actions")
        if start is None:
            self.stream = Stream(loaded.make_env(seed), rng)
            self.stream.reset()
        else:
            self.stream = loaded.resume_game(start, rng)
        self.rollout = Rollout(self._choose, [self.stream], every_row=True)
        self.env = start  # which environment of the run it is; None: none of them
        self.chosen = 0  # by the agent, for the next step
        self.number, (self.score, self.steps) = 0, self.stream.env.so_far
        self.notice: str | None = None  # why there is no image

    @property
    def obs(self) -> np.ndarray:
        return self.stream.stack.obs

    def image(self) -> bytes:
        if self.notice is None:
            try:
                return encode_png(self.stream.env.render())
            except UserError as error:
                self.notice = str(error)
        return b""

    def count(self, transition: Transition) -> None:
        """After a step. The next game begins by itself."""
        self.steps += 1
        self.score += transition.step.reward
        if transition.step.game is not None:
            self.number, self.steps, self.score = self.number + 1, 0, 0.0

    def _choose(self, obs: np.ndarray, legal: np.ndarray | None = None) -> np.ndarray:
        return np.array([self.chosen])


class Player:
    """Agents and games. `advance` makes one step and returns it as a message."""

    def __init__(
        self,
        agents: list[Loaded],
        drive: Drive,
        seed: int,
        epsilon: float,
        trusted: tuple[str, ...],
        start: int | None = None,
    ) -> None:
        self.agents, self.drive, self.trusted = agents, drive, trusted
        self.epsilon = epsilon
        self.criteria = [MEAN]
        self.chosen = 0  # position of the criterion that acts
        self.count = 0  # messages made
        self.games: list[WatchedGame] = []
        self.learners = [_learner(loaded) for loaded in agents]
        if len(agents) == 2 and drive != "each":
            _require_alike(*agents)
        self._memories: list[np.ndarray] = []  # [K] of each agent, before the observation of its game; K may be 0
        self.begin(seed, start)

    def begin(self, seed: int, start: int | None = None) -> None:
        """New games from a seed, or the game that an environment of the first agent's checkpoint was playing.

        If it cannot be brought back, new games begin, and `notice` says why. If a run has newer weights, they are
        loaded.
        """
        self._renew()
        self.seed, self.start = seed, start
        self.notice: str | None = None
        alone = len(self.agents) == 1 or self.drive == "each"
        players = self.agents if alone else [self.agents[self._driver(0)]]
        try:
            self._begin(players)
        except UserError as error:
            if start is None:
                raise
            self.start, self.notice = None, f"{error}; a new game begins"
            self._begin(players)
        self._memories = [np.zeros(loaded.agent.actor.memory, np.float32) for loaded in self.agents]
        if self.start is not None:  # the run's own agent goes on with what it remembered
            self._memories[0] = self.games[0].stream.memory.copy()

    def _begin(self, players: list[Loaded]) -> None:
        """Both agents begin from one saved game; one that plays another environment begins a new game."""
        self.close()
        for loaded in players:
            if self.start is not None and _alike(self.agents[0], loaded):
                self.games.append(WatchedGame(self.agents[0], self.seed, self.start))
            else:
                self.games.append(WatchedGame(loaded, self.seed))

    def close(self) -> None:
        for game in self.games:
            game.rollout.close()
        self.games = []

    def _renew(self) -> None:
        for place, loaded in enumerate(self.agents):
            if loaded.changed():
                self.agents[place] = open_agent(loaded.root, loaded.run, loaded.checkpoint, self.trusted)
                self.learners[place] = _learner(self.agents[place])

    def _driver(self, game: int) -> int:
        """Which agent acts in a game."""
        return game if self.drive == "each" else int(self.drive == "second" and len(self.agents) == 2)

    # ------------------------------------------------------------------- one step

    def advance(self) -> bytes:
        parts: Parts = {}
        games = []
        seats: list[dict[str, Any]] = []
        sights = [self._seen(seat) for seat in range(len(self.agents))]
        laws = [self._predict(seat, seen) for seat, seen in enumerate(sights)]
        for seat, law in enumerate(laws):
            seats.append(self._judge(law, self.agents[seat].agent.phi, self._game(seat).stream.stack.legal))
            for name in ("returns", "atoms", "probs"):
                parts[f"{seat}.{name}"] = getattr(law, name)
        for number, game in enumerate(self.games):
            games.append(self._play(number, game, seats, sights, parts))
        self.count += 1
        header = {"kind": "moment", "n": self.count, "seed": self.seed, "epsilon": self.epsilon, "games": games,
                  "seats": seats, "criteria": [str(c) for c in self.criteria], "by": self.chosen}  # fmt: skip
        if any(game["ended"] for game in games):
            self._renew()
        return pack(header, parts)

    def _game(self, seat: int) -> WatchedGame:
        return self.games[min(seat, len(self.games) - 1)]

    def _seen(self, seat: int) -> np.ndarray | Sight:
        """What the agent's network sees of its game: also what it remembers, if it does."""
        stream, memory = self._game(seat).stream, self._memories[seat]
        obs = stream.stack.obs
        return sight(obs[None].copy(), [stream])._replace(memory=memory[None]) if len(memory) else obs

    def _predict(self, seat: int, seen: np.ndarray | Sight) -> Distribution:
        """The agent's memory moves on."""
        agent = self.agents[seat].agent
        law = agent.distribution(seen)
        if not isinstance(seen, Sight):
            return law
        assert agent.actor.remembered is not None
        self._memories[seat] = agent.actor.remembered[0].copy()
        return Distribution(*(part[0] for part in law))

    def _judge(self, law: Distribution, phi: Phi, legal: np.ndarray | None) -> dict[str, Any]:
        """What each criterion makes of the actions, and which it would take of the legal ones."""
        returns, probs = torch.from_numpy(law.returns), torch.from_numpy(law.probs)
        mask = None if legal is None else torch.from_numpy(legal)
        return {
            "mean": law.mean.tolist(),
            "mean_atoms": phi.to(torch.from_numpy(law.mean)).tolist(),  # where the mean stands in φ-space
            "values": [criterion(returns, probs).tolist() for criterion in self.criteria],  # [A] each
            "would": [int(criterion.best(returns, probs, mask)) for criterion in self.criteria],
            **({} if legal is None else {"legal": legal.tolist()}),
        }

    def _play(
        self,
        number: int,
        game: WatchedGame,
        seats: list[dict[str, Any]],
        sights: list[np.ndarray | Sight],
        parts: Parts,
    ) -> dict[str, Any]:
        """One step of a game, and the targets of those who look at it."""
        parts[f"{number}.picture"] = game.image()
        driver = self._driver(number)
        game.chosen = seats[driver]["would"][self.chosen]
        for transition in game.rollout.step(self.epsilon):  # of one stream: there is one
            step = transition.step
            moment = {"game": game.number, "env": game.env, "step": game.steps, "score": game.score, "driver": driver,
                      "action": transition.action, "random": transition.random, "notice": game.notice}  # fmt: skip
            for seat in range(len(self.agents)):
                if self._game(seat) is game:
                    seats[seat] |= self._target(seat, sights[seat], game, transition, parts)
                    if step.reset is not None:
                        self._memories[seat][:] = 0.0
            game.count(transition)
        ended = None if step.game is None else {"score": step.game.score, "steps": step.game.steps}
        return {**moment, "reward": step.reward, "terminal": step.terminal, "truncated": step.truncated, "ended": ended}

    def _target(
        self, seat: int, seen_now: np.ndarray | Sight, game: WatchedGame, transition: Transition, parts: Parts
    ) -> dict[str, Any]:
        """The Bellman target of the step by the seat's own recipe; none where its learner never sees the step."""
        config, step = self.agents[seat].config, transition.step
        seen = learner_view(step, config.rules.truncation, config.recipe.clip_reward)
        if not seen.kept:
            return {"distance": None}
        after = game.stream.stack.followed_by(step.frame)  # the true one, even if the episode ended
        gamma = config.recipe.schedule.gamma
        masks = game.stream.stack.legal, step.legal
        target = bellman_target(self.learners[seat], seen_now, transition.action, seen, gamma, after, *masks)
        for name in ("returns", "atoms", "probs"):
            parts[f"{seat}.target_{name}"] = getattr(target, name)
        return {"distance": target.distance}


def _learner(loaded: Loaded) -> Learner:
    """What gives the agent's targets; it is not trained here."""
    return assemble_learner(loaded.config.recipe, loaded.agent.network, loaded.target, torch.Generator())


def _alike(first: Loaded, second: Loaded) -> bool:
    """Whether two agents can look at one game."""
    a, b = first.agent.spec, second.agent.spec
    return (a.obs_shape, a.frame_dtype, a.actions, first.env) == (b.obs_shape, b.frame_dtype, b.actions, second.env)


def _require_alike(first: Loaded, second: Loaded) -> None:
    a, b = first.agent.spec, second.agent.spec
    if not _alike(first, second):
        raise UserError(
            f"{first.run} plays {first.env} with {a.actions} actions and observations {a.obs_shape}, {second.run} "
            f"{second.env} with {b.actions} and {b.obs_shape}: they cannot look at one game; let each play its own"
        )
