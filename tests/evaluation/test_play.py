"""Whole games, none preferred: with stub environments whose lengths and scores are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.evaluation.play import evaluate, random_scores
from c2d.types import GameEnd, ResetFrame, Step

SPEC = EnvSpec("stub", "gym", (2,), "float32", stack=2, actions=3, frames_per_step=1)


class Stub:
    """A game of `length` steps, scoring 1 a step, that loses a life every third step. Frames are (seed, time)."""

    def __init__(self, seed: int, length: int, log: list):
        self.spec, self.seed, self.length, self.log = SPEC, seed, length, log
        self.closed = False

    def _frame(self):
        return np.array([self.seed, self.time], dtype=np.float32)

    def reset(self):
        self.time = 0
        return ResetFrame(self._frame())

    def step(self, action):
        assert not self.closed and self.time < self.length, "a finished game was played on"
        self.log.append((self.seed, self.time, action))
        self.time += 1
        over, life = self.time == self.length, self.time % 3 == 0
        game = GameEnd(float(self.time), self.time) if over else None
        opening = ResetFrame(self._frame()) if over or life else None
        return Step(self._frame(), 1.0, over or life, False, opening, game)

    def close(self):
        self.closed = True


class World:
    """Makes games of the given lengths in order of creation and an agent that notes what it is asked."""

    def __init__(self, lengths):
        self.lengths, self.games, self.log, self.batches = lengths, [], [], []
        self.agent = SimpleNamespace(spec=SPEC, actor=SimpleNamespace(greedy=self.greedy))

    def make_env(self, seed):
        self.games.append(Stub(seed, self.lengths[len(self.games)], self.log))
        return self.games[-1]

    def greedy(self, obs):
        self.batches.append(obs.copy())
        return (obs[:, -1] % 3).astype(np.int64)


LENGTHS = [9, 1, 30, 2, 2, 25, 4, 1, 17, 3, 8]


@pytest.mark.parametrize("parallel", [1, 2, 4, 11, 50])
def test_exactly_the_games_chosen_beforehand_count(parallel):
    world = World(LENGTHS)
    ends = evaluate(world.agent, world.make_env, len(LENGTHS), 0.0, parallel, seed=3)
    assert [end.steps for end in ends] == LENGTHS
    assert [end.score for end in ends] == [float(length) for length in LENGTHS]
    assert len(world.games) == len(LENGTHS) and all(game.closed for game in world.games)
    assert len({game.seed for game in world.games}) == len(LENGTHS)


@pytest.mark.parametrize("parallel", [1, 3, 50])
def test_one_network_call_per_step_for_all_running_games(parallel):
    world = World(LENGTHS)
    evaluate(world.agent, world.make_env, len(LENGTHS), 0.0, parallel)
    assert sum(map(len, world.batches)) == sum(LENGTHS)  # ended games are asked nothing
    assert max(map(len, world.batches)) == min(parallel, len(LENGTHS))
    calls, places = 0, [0] * parallel  # the schedule by hand: the next game takes the place that frees first
    for length in LENGTHS:
        places[places.index(min(places))] += length
        calls = max(places)
    assert len(world.batches) == calls


def test_observations_belong_to_their_own_game():
    world = World(LENGTHS)
    evaluate(world.agent, world.make_env, len(LENGTHS), 0.0, parallel=3)
    for batch in world.batches:
        for before_seed, before_time, seed, time in batch:
            if time % 3 == 0:  # opening of a game or of a life: nothing before it
                assert (before_seed, before_time) == (0, 0)
            else:
                assert (before_seed, before_time) == (seed, time - 1)
    for _, time, action in world.log:
        assert action == time % 3


def test_followers_are_told_the_row_of_each_game_and_the_action_taken():
    world = World(LENGTHS)
    told = []

    def follow(number, transition):
        row, action, step = transition.stream, transition.action, transition.step
        before_action = world.batches[-1][row]  # what the game had shown
        told.append((before_action[2], before_action[3], action))
        assert step.frame.tolist() == [before_action[2], before_action[3] + 1]
        assert np.float32(world.games[number].seed) == before_action[2]

    evaluate(world.agent, world.make_env, len(LENGTHS), 0.5, parallel=3, follow=follow)
    assert told == [(np.float32(seed), time, action) for seed, time, action in world.log]


def test_another_choice_than_the_greedy_one():
    world = World([12, 5])
    evaluate(world.agent, world.make_env, 2, 0.0, 2, choose=lambda obs: np.full(len(obs), 2))
    assert {action for _, _, action in world.log} == {2} and not world.batches


def test_course_of_each_game_does_not_depend_on_the_others():
    logs = []
    for parallel in (1, 4, 50):
        world = World(LENGTHS)
        evaluate(world.agent, world.make_env, len(LENGTHS), 0.5, parallel, seed=8)
        logs.append(sorted(world.log))
    assert logs[0] == logs[1] == logs[2]
    other = World(LENGTHS)
    evaluate(other.agent, other.make_env, len(LENGTHS), 0.5, 4, seed=9)
    assert sorted(other.log) != logs[0]


def test_games_draw_different_random_actions():
    world = World([50, 50])
    random_scores(world.make_env, 2)
    actions = [action for _, _, action in world.log]
    assert actions[:50] != actions[50:]


def test_epsilon_is_the_share_of_random_actions():
    world = World([20_000])
    evaluate(world.agent, world.make_env, 1, 0.3, 1)
    other = np.mean([action != time % 3 for _, time, action in world.log])
    assert abs(other - 0.3 * 2 / 3) < 0.015


def test_random_policy_is_uniform_and_plays_whole_games():
    world = World([3_000, 1, 5_000])
    assert [end.steps for end in random_scores(world.make_env, 3, seed=1)] == [3_000, 1, 5_000]
    shares = np.bincount([action for _, _, action in world.log]) / len(world.log)
    assert np.abs(shares - 1 / 3).max() < 0.03
    assert all(game.closed for game in world.games) and not world.batches


def test_watch_sees_games_and_steps():
    seen = []
    world = World([2, 3])
    evaluate(world.agent, world.make_env, 2, 0.0, 2, watch=lambda games, steps: seen.append((games, steps)))
    assert seen == [(0, 2), (1, 4), (2, 5)]


def test_environments_are_closed_when_one_fails():
    world = World([5, 5])
    world.agent.actor.greedy = lambda obs: 1 / 0
    with pytest.raises(ZeroDivisionError):
        evaluate(world.agent, world.make_env, 2, 0.0, 2)
    assert all(game.closed for game in world.games)


@pytest.mark.parametrize(
    ("games", "epsilon", "parallel", "message"),
    [
        (0, 0.0, 1, "--games is 0"),
        (1, 1.5, 1, "--epsilon is 1.5"),
        (1, float("nan"), 1, "--epsilon"),
        (1, 0.0, 0, "--parallel is 0"),
    ],
)
def test_bad_numbers(games, epsilon, parallel, message):
    world = World([1])
    with pytest.raises(UserError, match=message):
        evaluate(world.agent, world.make_env, games, epsilon, parallel)


def test_environment_of_another_shape():
    world = World([1])
    world.agent.spec = EnvSpec("trained", "gym", (2,), "float32", stack=2, actions=4, frames_per_step=1)
    with pytest.raises(
        UserError, match=r"stub has observations \(4,\) and 3 actions; accepted: \(4,\) and 4, as on trained"
    ):
        evaluate(world.agent, world.make_env, 1)
    assert all(game.closed for game in world.games)
