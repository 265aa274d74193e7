"""The cadence of a run: when it acts, learns and copies."""

from dataclasses import replace

from c2d.agents.learner import linear
from c2d.training.session import Session, Tally
from tests.training.short_runs import short_config


def watched(session):
    """The list in which acting, learning and copying are noted as they happen."""
    events = []
    update, synchronize, decide = session.learner.update, session.learner.synchronize, session.rollout.decide
    session.learner.update = lambda batch: (events.append("update"), update(batch))[1]
    session.learner.synchronize = lambda: (events.append("copy"), synchronize())[1]
    session.rollout.decide = lambda epsilon: (events.append("act"), decide(epsilon))[1]
    return events


def test_order_of_one_step():
    """Update at steps 0, 4, 8, …; copy to the target at 0, 50, …: after the update of the same step."""
    config = short_config("gym/CartPole-v1", "unused", update_period=4, target_period=6)
    session = Session(config)
    session.fill_history()
    events = watched(session)
    for _ in range(9):
        session.advance()
    words = "act update copy|act|act|act|act update|act|act copy|act|act update"
    assert events == words.replace("|", " ").split()


def test_order_of_one_step_of_three_environments():
    """Periods count the steps of all environments: of twelve steps, 0, 4 and 8 learn, 0 and 6 copy."""
    config = short_config("gym/CartPole-v1", "unused", update_period=4, target_period=6)
    session = Session(replace(config, recipe=replace(config.recipe, envs=3)))
    session.fill_history()
    assert session.history == 60 and [ring.head > 20 for ring in session.replay.rings] == [True] * 3
    events = watched(session)
    heads = [ring.head for ring in session.replay.rings]
    for _ in range(4):
        session.advance()
    assert session.step == 12 and all(
        ring.head >= head + 4 for ring, head in zip(session.replay.rings, heads, strict=True)
    )
    assert events == "act update copy|act update|act copy update|act".replace("|", " ").split()
    session.close()


def test_history_is_random_and_counts_toward_nothing():
    config = short_config("gym/CartPole-v1", "unused")
    session = Session(config)
    asked = []
    decide = session.rollout.decide
    session.rollout.decide = lambda epsilon: (asked.append(epsilon), decide(epsilon))[1]
    session.fill_history()
    assert asked == [1.0] * 60
    assert session.step == 0 and session.iteration == 0 and session.epsilon == 1.0
    assert session.tally.state_dict() == Tally().state_dict()
    assert not session.learner.updates
    session.advance()
    session.advance()
    assert asked[60:] == [[1.0], [linear(1, 1.0, 0.01, 100)]]


def test_observations_outside_their_range_are_told_once(tmp_path):
    config = short_config("tests.envs.user_envs:Stray", tmp_path / "run", iterations=2, steps=40)
    session = Session(replace(config, recipe=replace(config.recipe, envs=2)))
    session.fill_history()
    for _ in range(2):
        for _ in range(20):
            session.advance()
        session.finish_iteration()
    texts = [text for text, warning in session.notices if warning]
    assert len(texts) == 1 and "gym/tests.envs.user_envs:Stray" in texts[0] and "where it is 0 to 3" in texts[0]
