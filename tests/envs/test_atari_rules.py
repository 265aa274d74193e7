"""Each rule by its effect, on a scripted emulator."""

from dataclasses import replace

import numpy as np
import pytest

from c2d.agents.rollout import FrameStack
from c2d.envs.protocols import PROTOCOLS, AtariRules
from tests.envs.fake_emulator import FakeEmulator, scripted

PAPER = PROTOCOLS["c2d-paper"]
DOPAMINE = PROTOCOLS["dopamine"]
CALM = replace(PAPER, sticky=0.0)


def test_rewards_of_the_repeats_are_added_and_the_last_two_frames_are_pooled() -> None:
    emulator = FakeEmulator()
    game = scripted(CALM, emulator)
    assert game.reset().frame.max() == emulator.level() == 40
    step = game.step(2)
    assert step.reward == 4.0 and emulator.frame == 4
    assert emulator.executed == [3, 3, 3, 3]  # RIGHT is the third of Breakout's four actions
    assert (step.frame == 40 + 3 + 20).all()  # frame 3, brighter than frame 4
    assert (step.terminal, step.truncated, step.reset, step.game) == (False, False, None, None)


@pytest.mark.parametrize("repeat", [1, 2, 3, 6])
def test_action_repeat_sets_the_frames_of_a_step(repeat: int) -> None:
    emulator = FakeEmulator()
    game = scripted(replace(CALM, action_repeat=repeat), emulator)
    game.reset()
    step = game.step(0)
    assert step.reward == emulator.frame == repeat == game.spec.frames_per_step
    shown = {1: 1 + 20, 2: 1 + 20, 3: 3 + 20, 6: 5 + 20}[repeat]  # the brighter of the last two
    assert (step.frame == 40 + shown).all()


@pytest.mark.parametrize("death", [1, 2, 3, 4])
def test_a_lost_life_cuts_the_repeats_and_ends_the_learners_episode_but_not_the_game(death: int) -> None:
    emulator = FakeEmulator(deaths=(4 + death,))
    game = scripted(CALM, emulator)
    game.reset()
    game.step(0)
    step = game.step(0)
    assert emulator.frame == 4 + death and step.reward == death
    assert step.terminal and not step.truncated and step.game is None
    assert emulator.resets == 1
    assert step.reset is not None and step.reset.repeats == 2
    assert (step.reset.frame == emulator.level()).all()  # one frame alone, not pooled
    after = game.step(0)
    assert after.reward == 4.0 and not after.terminal


def test_openings_are_00ff_after_an_episode_and_000f_after_start_in_the_paper() -> None:
    emulator = FakeEmulator(deaths=(2,))
    game = scripted(CALM, emulator)
    stack = FrameStack(game.spec)
    assert stack.reset(game.reset()).max(axis=(1, 2)).tolist() == [0, 0, 0, 40]
    assert stack.update(game.step(0)).max(axis=(1, 2)).tolist() == [0, 0, 42, 42]
    assert stack.update(game.step(0)).max(axis=(1, 2)).tolist() == [0, 42, 42, 40 + 5 + 20]
    emulator = FakeEmulator(deaths=(2,), lives=1)
    game = scripted(DOPAMINE, emulator)
    stack = FrameStack(game.spec)
    game.reset()
    assert stack.update(game.step(0)).max(axis=(1, 2)).tolist() == [0, 0, 0, 80]  # of the new game


def test_without_the_life_loss_rule_only_game_over_ends_an_episode() -> None:
    emulator = FakeEmulator(deaths=(2, 5, 11))
    game = scripted(replace(DOPAMINE, sticky=0.0), emulator)
    game.reset()
    steps = [game.step(0) for _ in range(3)]
    assert [step.terminal for step in steps] == [False, False, True]
    assert [step.reward for step in steps] == [4.0, 4.0, 3.0]  # game over cuts the repeats
    assert steps[2].game == (11.0, 3)
    assert emulator.resets == 2


def test_scores_are_of_whole_games_and_start_anew() -> None:
    emulator = FakeEmulator(deaths=(2, 7, 9))
    game = scripted(CALM, emulator)
    game.reset()
    for _ in range(2):  # 2 + (4 + 1) + 2 frames in 4 steps, each game
        steps = [game.step(0) for _ in range(4)]
        assert [step.game for step in steps] == [None, None, None, (9.0, 4)]
    game.step(0)
    game.reset()  # abandons a game in progress
    assert [game.step(0).game for _ in range(4)][-1] == (9.0, 4)


def test_the_cap_in_steps_truncates_a_whole_game_across_lives() -> None:
    emulator = FakeEmulator(deaths=(6,))
    game = scripted(replace(CALM, cap_steps=5), emulator)
    game.reset()
    steps = [game.step(0) for _ in range(10)]
    assert [step.terminal for step in steps] == [False, True, False, False, False] * 2
    assert [step.truncated for step in steps] == [False, False, False, False, True] * 2
    capped = steps[4]
    assert capped.game == (4 + 2 + 4 + 4 + 4, 5)
    assert capped.reset is not None and capped.reset.repeats == 2
    assert (capped.frame == 40 + 17 + 20).all()  # the true final frame of the game that was cut
    assert (capped.reset.frame == 80).all()  # and the first of the next
    assert emulator.resets == 3


def test_a_death_at_the_cap_is_terminal_and_still_ends_the_game() -> None:
    game = scripted(replace(CALM, cap_steps=2), FakeEmulator(deaths=(7,)))
    game.reset()
    game.step(0)
    step = game.step(0)
    assert step.terminal and not step.truncated and step.game == (7.0, 2)


def test_the_cap_in_frames_stops_at_that_very_frame() -> None:
    emulator = FakeEmulator()
    game = scripted(replace(PROTOCOLS["dopamine-2024"], cap_frames=10), emulator)
    game.reset()
    steps = [game.step(0) for _ in range(3)]
    assert [step.reward for step in steps] == [4.0, 4.0, 2.0]
    assert [step.truncated for step in steps] == [False, False, True]
    assert steps[2].game == (10.0, 3)
    assert game.step(0).reward == 4.0


def test_no_cap_means_no_cap() -> None:
    game = scripted(replace(PAPER, cap_steps=None), FakeEmulator())
    game.reset()
    assert not any(game.step(0).truncated for _ in range(500))


def test_idle_frames_begin_a_new_game_and_count_for_nothing() -> None:
    emulator = FakeEmulator(deaths=(40,), lives=1)
    game = scripted(replace(DOPAMINE, noop_max=7), emulator)
    waits = set()
    for _ in range(60):
        emulator.executed.clear()
        game.reset()
        waits.add(len(emulator.executed))
        assert set(emulator.executed) == {0}
    assert waits == set(range(1, 8))
    idle = emulator.frame
    while (step := game.step(2)).game is None:
        pass
    assert step.game.score == 40 - idle


def test_sticky_frames_repeat_the_action_executed_before_a_quarter_of_the_time() -> None:
    """Actions alternate, so every executed frame tells whether it stuck; new games start from NOOP."""
    emulator = FakeEmulator()
    game = scripted(replace(PAPER, cap_steps=None), emulator)
    game.reset()
    legal = [0, 1, 3, 4]
    rng = np.random.default_rng(3)
    stuck = total = 0
    before = 0
    for _ in range(3000):
        action = int(rng.integers(4))
        emulator.executed.clear()
        game.step(action)
        for frame, done in enumerate(emulator.executed):
            assert done in (legal[action], before)
            if before != legal[action]:
                total += 1
                stuck += done == before
            elif frame == 0:
                assert done == before
            before = done
    assert total > 2500
    assert abs(stuck / total - 0.25) < 4 * np.sqrt(0.25 * 0.75 / total)


def test_stickiness_follows_the_draws_of_its_generator_even_across_cut_steps() -> None:
    """One draw per frame of a full step, whether or not a death cuts it: compared with a plain replay."""
    emulator = FakeEmulator(deaths=(6, 13))
    rules = replace(PAPER, cap_steps=None)
    game = scripted(rules, emulator, seed=11)
    game.reset()
    draws = np.random.Generator(np.random.PCG64(np.random.SeedSequence(11).spawn(2)[0]))
    last, expected, lengths = 0, [], [4, 2, 4, 3, 4, 4]
    for number, length in enumerate(lengths):
        chosen = [1, 3, 4][number % 3]
        for draw in draws.random(4)[:length]:
            last = last if draw < 0.25 else chosen
            expected.append(last)
        game.step([1, 2, 3][number % 3])
    assert emulator.executed == expected


@pytest.mark.parametrize(("sticky", "executed"), [(0.0, 3), (1.0, 0)])
def test_stickiness_at_its_ends(sticky: float, executed: int) -> None:
    emulator = FakeEmulator()
    game = scripted(replace(PAPER, sticky=sticky), emulator)
    game.reset()
    game.step(2)
    assert emulator.executed == [executed] * 4


def test_after_a_new_game_stickiness_starts_from_noop_but_not_after_a_lost_life() -> None:
    emulator = FakeEmulator(deaths=(2, 4), lives=2)
    game = scripted(replace(PAPER, sticky=0.0), emulator)
    game.reset()
    game.step(2)
    game.rules = AtariRules(sticky=1.0)
    assert game.step(1).game is not None
    assert emulator.executed == [3, 3, 3, 3]  # the life was lost, the stick still points right
    game.step(1)
    assert emulator.executed[4:] == [0, 0]
