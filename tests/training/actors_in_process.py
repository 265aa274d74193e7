"""Actors without Ray: the same actors and the same learner, whose answers come when a test says."""

import pickle
from dataclasses import replace

import numpy as np

from c2d.training.observers import Observer
from c2d.training.remote_actor import RemoteActor
from c2d.training.remote_rollout import ActorLost, RemoteRollout
from c2d.training.run import run
from c2d.training.verification import digests
from tests.training.short_runs import short_config


class InProcess:
    """`Transport` whose answers come late and in any order, and whose actors die at some answers.

    All that is sent is pickled, as on its way to another process.
    """

    def __init__(self, seed=None, deaths=(), silent=()):
        self.rng = None if seed is None else np.random.default_rng(seed)  # None: answers come at once
        self.deaths, self.silent = set(deaths), set(silent)  # numbers of answers; numbers of actors
        self.actors, self.pending, self.answers = {}, [], 0
        self.requests, self.orders, self.shared = [], [], []

    def connect(self):
        pass

    def start(self, request):
        self.pending = [(actor, *rest) for actor, *rest in self.pending if actor != request.number]
        self.requests.append(request)
        self.actors[request.number] = RemoteActor(pickle.loads(pickle.dumps(request)))

    def share(self, weights):
        self.shared.append(weights)
        return pickle.dumps(weights)

    def send(self, actor, order, weights):
        self.orders.append((actor, order))
        self.pending.append((actor, pickle.dumps(order), weights))

    def receive(self, seconds):
        ready = [number for number, (actor, *_) in enumerate(self.pending) if actor not in self.silent]
        if self.rng is not None:  # at most one, and sometimes none
            ready = list(self.rng.permutation(ready)[: self.rng.integers(0, 2)])
        taken = [self.pending[number] for number in ready]
        self.pending = [order for number, order in enumerate(self.pending) if number not in ready]
        return [(actor, self.answer(actor, order, weights)) for actor, order, weights in taken]

    def answer(self, actor, order, weights):
        self.answers += 1
        if self.answers in self.deaths:
            del self.actors[actor]
            return ActorLost("its process was killed")
        played = self.actors[actor].play(pickle.loads(order), None if weights is None else pickle.loads(weights))
        return pickle.loads(pickle.dumps(played))

    def close(self):
        pass


class Witness(Observer):
    """Keeps notices and the digests of the end; asks the run to stop at a step, counted with the random ones."""

    def __init__(self, stop_at=None):
        self.stop_at, self.notices = stop_at, []

    def begin(self, run):
        self.session, self.header = run._session, run.header
        session = self.session
        made = session.advance, session.fill

        def then_look(act):
            def acting():
                result = act()
                if self.stop_at is not None and session.steps_made >= self.stop_at:
                    session.stop.set()
                return result

            return acting

        session.advance, session.fill = map(then_look, made)

    def notice(self, run, text, warning):
        self.notices.append(text)

    def end(self, run, summary):
        self.found = digests(self.session)


def actors_config(env, path, actors=2, recipe="c2d", envs=None, iterations=2, **settings):
    """60 random and 240 training steps, in blocks of 7 steps of each environment."""
    config = short_config(env, path, recipe=recipe, iterations=iterations)
    recipe = config.recipe if envs is None else replace(config.recipe, envs=envs)
    checkpoint = replace(config.checkpoint, every_steps=50)
    actor = replace(config.actor, **{"weights_period": 7, **settings})
    return replace(config, recipe=recipe, actors=actors, actor=actor, checkpoint=checkpoint)


def train_with(transport, config, monkeypatch, stop_at=None):
    """A run, and what was seen of it."""

    def connect(rollout):
        rollout._transport, rollout._connected = transport, True

    monkeypatch.setattr(RemoteRollout, "connect", connect)
    witness = Witness(stop_at)
    result = run(config, [witness])
    return witness, result
