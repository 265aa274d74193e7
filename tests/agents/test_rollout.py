"""Acting and the play loop: how often at random, by which mean, in which order, and what remains after a failure."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from c2d.agents.learner import linear
from c2d.agents.rollout import Actor, FrameStack, Rollout, Stream, epsilon_greedy
from c2d.envs.spec import EnvSpec
from c2d.returns.phi import identity, scaled_h
from c2d.types import GameEnd, ResetFrame, ReturnDist, Step

OBS = np.zeros(4, dtype=np.float32)
SPEC = EnvSpec("stub", "gym", (2,), "float32", stack=3, actions=5, frames_per_step=1)


class Fixed(nn.Module):
    """The same law for every observation, recording the purpose and the size of every pass."""

    def __init__(self, atoms, probs):
        super().__init__()
        self.atoms, self.log_probs = nn.Parameter(torch.tensor(atoms)), torch.tensor(probs).log()
        self.passes = []

    def forward(self, obs, purpose, rng=None):
        self.passes.append((purpose, len(obs)))
        size = (len(obs), *self.atoms.shape)
        return ReturnDist(self.atoms.expand(size), self.log_probs.expand(size))


def actor(phi=None, atoms=((0.0,), (1.0,), (-1.0,)), probs=((1.0,), (1.0,), (1.0,))):
    return Actor(Fixed(atoms, probs), phi or identity())


def acts(player, epsilon, rows=1, rng=None, every_row=False):
    """Actions of `rows` equal observations; one generator for all, in their order."""
    rngs = [np.random.default_rng(0) if rng is None else rng] * rows
    return [action for action, _ in epsilon_greedy([OBS] * rows, rngs, epsilon, 3, player.greedy, every_row)]


# ------------------------------------------------------------------------------ ε-greedy


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("rows", [1, 300])
def test_random_share_is_epsilon(epsilon, rows):
    """P(greedy action) = 1 − ε + ε/3; each other ε/3. Bounds are five standard errors."""
    player, rng, n = actor(), np.random.default_rng(0), 3000
    actions = np.concatenate([acts(player, epsilon, rows, rng) for _ in range(n // rows)])
    wanted = np.full(3, epsilon / 3)
    wanted[1] += 1 - epsilon
    bound = 5 * np.sqrt(wanted * (1 - wanted) / n) + 1e-12
    assert (np.abs(np.bincount(actions, minlength=3) / n - wanted) <= bound).all()


def test_network_runs_once_in_acting_mode_for_the_rows_whose_answer_is_used():
    player = actor()
    for _ in range(50):
        acts(player, 1.0, rows=4)
    assert player.network.passes == []
    acts(player, 0.0)
    acts(player, 0.0, rows=4)
    acts(player, 1.0, rows=4, every_row=True)
    assert player.network.passes == [("act", 1), ("act", 4), ("act", 4)]
    player.network.passes.clear()
    drawn = [random for _, random in epsilon_greedy([OBS] * 50, [np.random.default_rng(1)] * 50, 0.5, 3, player.greedy)]
    assert player.network.passes == [("act", drawn.count(False))] and 0 < sum(drawn) < 50


def test_draws_come_row_by_row_whether_or_not_the_network_sees_every_row():
    """A generator is asked `random()` and, only if that is below ε, `integers(actions)`."""
    for every_row in (False, True):
        rngs = [np.random.default_rng(seed) for seed in range(20)]
        choices = epsilon_greedy([OBS] * 20, rngs, 0.4, 3, lambda obs: np.arange(len(obs)) % 3, every_row)
        for seed, (action, random) in enumerate(choices):
            rng = np.random.default_rng(seed)
            assert random == (rng.random() < 0.4)
            if random:
                assert action == rng.integers(3)
            elif every_row:
                assert action == seed % 3
            assert rngs[seed].bit_generator.state == rng.bit_generator.state


def test_greedy_goes_by_the_mean_of_real_returns():
    """φ is concave for gains: a gamble of 0 or 100 has mean 50 but a smaller φ-mean than a sure 40."""
    phi = scaled_h()
    gamble, sure = phi.to(torch.tensor([0.0, 100.0])), phi.to(torch.tensor([40.0, 40.0]))
    assert sure.mean() > gamble.mean()  # the two readings disagree
    player = actor(phi, atoms=(sure.tolist(), gamble.tolist()), probs=((0.5, 0.5), (0.5, 0.5)))
    assert acts(player, 0.0) == [1]
    loss = actor(phi, atoms=((-sure).tolist(), (-gamble).tolist()), probs=((0.5, 0.5), (0.5, 0.5)))
    assert acts(loss, 0.0) == [0]


def test_greedy_weighs_by_probabilities():
    assert acts(actor(atoms=((0.0, 10.0), (3.0, 3.0)), probs=((0.9, 0.1), (0.5, 0.5))), 0.0) == [1]
    assert acts(actor(atoms=((0.0, 10.0), (3.0, 3.0)), probs=((0.1, 0.9), (0.5, 0.5))), 0.0) == [0]


def test_same_generator_same_actions():
    first, second, other = (
        [acts(actor(), 0.9, rng=rng)[0] for _ in range(50)] for rng in map(np.random.default_rng, (0, 0, 1))
    )
    assert first == second != other


def test_linear_schedule_at_start_middle_end():
    values = [linear(step, 1.0, 0.01, 250_000) for step in (0, 125_000, 250_000, 10**9)]
    assert values == [1.0, pytest.approx(0.505), 0.01, 0.01]
    assert linear(0, 1.0, 0.1, 0) == 0.1  # no decay: at its end from the first step


# ------------------------------------------------------------------------------ the frame stack


def test_the_observation_that_would_follow_is_new_memory():
    stack = FrameStack(SPEC)
    stack.reset(ResetFrame(np.array([1, 2], np.float32), 2))
    assert stack.obs.tolist() == [0, 0, 1, 2, 1, 2]
    after = stack.followed_by(np.array([3, 4], np.float32))
    assert after.tolist() == [1, 2, 1, 2, 3, 4] and stack.obs.tolist() == [0, 0, 1, 2, 1, 2]
    assert stack.push(np.array([3, 4], np.float32)).tolist() == after.tolist()


# ------------------------------------------------------------------------------ the rollout


class Stub:
    """Frames are (number, time). An episode of `length` steps; `fails` names the steps at which it breaks once."""

    def __init__(self, number, length, fails=()):
        self.spec, self.number, self.length, self.fails = SPEC, number, length, list(fails)
        self.time, self.made, self.actions, self.closed = 0, 0, [], False

    def _frame(self):
        return np.array([self.number, self.time], dtype=np.float32)

    def reset(self):
        self.time = 0
        return ResetFrame(self._frame())

    def step(self, action):
        if self.made in self.fails:
            self.fails.remove(self.made)
            raise OSError("the emulator is gone")
        self.made, self.time = self.made + 1, self.time + 1
        self.actions.append(action)
        frame, over = self._frame(), self.time == self.length
        return Step(
            frame, 1.0, over, False, self.reset() if over else None, GameEnd(1.0, self.length) if over else None
        )

    def close(self):
        self.closed = True


class Policy:
    """Takes time modulo 5 for an action, and keeps the observations."""

    def __init__(self):
        self.batches = []

    def __call__(self, obs):
        self.batches.append(obs)
        return (obs[:, -1] % 5).astype(np.int64)


def rollout_of(envs, policy=None, every_row=False, seed=0, threads=0):
    streams = [Stream(env, np.random.default_rng((seed, k))) for k, env in enumerate(envs)]
    rollout = Rollout(policy or Policy(), streams, every_row, threads)
    for stream in streams:
        stream.reset()
    return rollout


def test_streams_advance_together_by_one_pass():
    envs, policy = [Stub(k, length) for k, length in enumerate((3, 100, 7))], Policy()
    rollout = rollout_of(envs, policy)
    for _ in range(20):
        assert [t.stream for t in rollout.step(0.0)] == [0, 1, 2]
    assert len(policy.batches) == 20 and all(batch.shape == (3, 6) for batch in policy.batches)
    for number, (env, length) in enumerate(zip(envs, (3, 100, 7), strict=True)):
        assert env.actions == [time % length % 5 for time in range(20)]
        for step, batch in enumerate(policy.batches):  # each row is the stream's own stack: nothing of another episode
            time = step % length
            wanted = [[number, t] if t >= 0 else [0, 0] for t in (time - 2, time - 1, time)]
            assert batch[number].tolist() == np.concatenate(wanted).tolist()


def test_what_a_stream_does_does_not_depend_on_the_others():
    alone = [Stub(1, 6)]
    rollout = rollout_of([Stub(0, 4)])
    rollout.streams = [Stream(alone[0], np.random.default_rng((0, 1)))]
    rollout.streams[0].reset()
    together = [Stub(k, 6) for k in range(3)]
    both = rollout_of(together)
    for _ in range(40):
        list(rollout.step(0.5))
        list(both.step(0.5))
    assert alone[0].actions == together[1].actions != together[2].actions


def test_while_a_transition_is_handed_out_its_stack_shows_what_was_acted_on():
    rollout, policy = rollout_of([Stub(0, 3), Stub(1, 4)]), Policy()
    rollout.choose = policy
    for _ in range(9):
        for stream, action, random, step, *_ in rollout.step(0.0):
            seen = rollout.streams[stream].stack.obs
            assert seen.tolist() == policy.batches[-1][stream].tolist() and action == seen[-1] % 5 and not random
            assert rollout.streams[stream].stack.followed_by(step.frame)[-1] == seen[-1] + 1  # even if it ended


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_a_failing_environment_leaves_the_round_to_be_finished(threads):
    """Stream 1 fails at its third step: the others make theirs, once, and nothing is drawn twice."""
    plain, broken = [Stub(k, 50) for k in range(3)], [Stub(k, 50, [2] if k == 1 else []) for k in range(3)]
    one, other = rollout_of(plain), rollout_of(broken, threads=threads)
    for _ in range(2):
        assert [t.action for t in one.step(0.5)] == [t.action for t in other.step(0.5)]
    wanted = [t.action for t in one.step(0.5)]
    made = []
    with pytest.raises(OSError, match="the emulator is gone") as failure:
        for transition in other.step(0.5):
            made.append(transition)
    assert failure.value.__notes__ == ["environment 1 of 3: stub"]
    assert [t.stream for t in made] == [0, 2]
    assert [stream.action is None for stream in other.streams] == [True, False, True] and other.at_rest
    made += other.step(0.5)
    assert [t.stream for t in made] == [0, 2, 1] and [t.action for t in sorted(made)] == wanted
    assert [env.made for env in broken] == [3, 3, 3] and all(stream.action is None for stream in other.streams)
    for _ in range(30):
        assert [t.action for t in one.step(0.5)] == [t.action for t in other.step(0.5)]
    for left, right in zip(one.streams, other.streams, strict=True):
        assert np.array_equal(left.stack.obs, right.stack.obs)
        assert left.rng.bit_generator.state == right.rng.bit_generator.state


def test_the_error_of_a_single_environment_is_left_as_it_is():
    with pytest.raises(OSError) as failure:
        list(rollout_of([Stub(0, 5, [0])]).step(0.0))
    assert not hasattr(failure.value, "__notes__")


@pytest.mark.parametrize("threads", [0, 2])
def test_a_consumer_that_fails_gets_the_same_step_again(threads):
    """The environment has made it: it is not made twice, and until it is handed out nothing is at rest."""
    envs = [Stub(0, 5), Stub(1, 5)]
    rollout = rollout_of(envs, threads=threads)
    with pytest.raises(MemoryError):
        for _ in rollout.step(0.0):
            raise MemoryError
    assert rollout.streams[0].action == 0 and rollout.streams[0].stack.obs[-1] == 0.0 and not rollout.at_rest
    assert [(t.stream, t.step.frame.tolist()) for t in rollout.step(0.0)] == [(0, [0.0, 1.0]), (1, [1.0, 1.0])]
    assert [env.made for env in envs] == [1, 1] and rollout.at_rest


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing_but_who_steps(threads):
    plain, threaded = ([Stub(k, 7 + k) for k in range(4)] for _ in range(2))
    one, other = rollout_of(plain), rollout_of(threaded, threads=threads)
    stepping = set()
    step = threaded[0].step
    threaded[0].step = lambda action: (stepping.add(threading.current_thread().name), step(action))[1]
    for _ in range(30):
        for left, right in zip(one.step(0.3), other.step(0.3), strict=True):
            assert left[:3] == right[:3] and left.step.frame.tolist() == right.step.frame.tolist()
    assert stepping and all(name.startswith("environments ") for name in stepping)
    other.close()
    assert all(env.closed for env in threaded)


def test_what_is_launched_steps_meanwhile_and_is_not_decided_twice():
    envs, policy = [Stub(k, 50) for k in range(2)], Policy()
    rollout = rollout_of(envs, policy, threads=1)
    rollout.launch(0.0)
    for stream in rollout.streams:
        assert stream.done.wait(10.0)
    assert [env.made for env in envs] == [1, 1] and not rollout.at_rest
    assert [t.action for t in rollout.step(0.0)] == [0, 0]
    assert [env.made for env in envs] == [1, 1] and len(policy.batches) == 1 and rollout.at_rest


def test_a_hanging_environment_is_left_open(monkeypatch):
    monkeypatch.setattr("c2d.agents.rollout._LAST_STEP", 0.05)
    envs, go = [Stub(k, 50) for k in range(2)], threading.Event()
    envs[1].step = lambda action: go.wait(60.0)
    rollout = rollout_of(envs, threads=2)
    rollout.launch(0.0)
    rollout.streams[0].done.wait(10.0)
    rollout.close()
    assert [env.closed for env in envs] == [True, False]
    go.set()


def test_each_stream_explores_by_its_own_epsilon():
    rollout = rollout_of([Stub(k, 1_000) for k in range(3)])
    drawn = [[t.random for t in rollout.step([0.0, 0.5, 1.0])] for _ in range(400)]
    shares = np.mean(drawn, axis=0)
    assert shares[0] == 0.0 and 0.4 < shares[1] < 0.6 and shares[2] == 1.0


def test_a_new_game_forgets_the_action():
    rollout = rollout_of([Stub(0, 5, [1])])
    list(rollout.step(0.0))
    with pytest.raises(OSError):
        list(rollout.step(0.0))
    assert rollout.streams[0].action == 1
    rollout.streams[0].reset()
    assert rollout.streams[0].action is None and rollout.streams[0].stack.obs.tolist() == [0.0] * 6


def test_streams_come_and_go():
    rollout = rollout_of([Stub(0, 9), Stub(1, 9)])
    list(rollout.step(0.0))
    first, second = (stream.env for stream in rollout.streams)
    rollout.remove(0)
    assert first.closed and not second.closed
    rollout.add(Stub(2, 9), np.random.default_rng(0)).reset()
    assert [(t.stream, t.step.frame.tolist()) for t in rollout.step(0.0)] == [(0, [1, 2]), (1, [2, 1])]
    rollout.close()
    assert all(stream.env.closed for stream in rollout.streams)


def test_random_play_needs_no_policy():
    env = Stub(0, 9)
    stream = Stream(env, np.random.default_rng(0))
    stream.reset()
    rollout = Rollout(None, [stream])
    assert all(transition.random for _ in range(50) for transition in rollout.step(1.0))
    assert set(env.actions) == set(range(5))
    with pytest.raises(AssertionError, match="a policy is needed"):
        list(rollout.step(0.0))
