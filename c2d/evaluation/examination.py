"""What an environment does, found out by playing it: the part of `c2d check-env` that runs the user's code.

It runs in a process of its own, which may hang or die (bench/env_check.py), and tells what it found as it goes.
Everything is decided by the seed but the speed.
"""

from __future__ import annotations

import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Literal, NamedTuple

import numpy as np

from c2d.config import Config, default_config, to_json
from c2d.envs.gymnasium import build, wrapped
from c2d.envs.make import default_rules, make, spec_of, with_arguments
from c2d.envs.names import resolve
from c2d.envs.protocols import GymRules, Rules
from c2d.envs.spec import Environment, EnvSpec
from c2d.envs.trial import digest
from c2d.errors import UserError
from c2d.formatting import plural
from c2d.types import Step

Verdict = Literal["ok", "note", "problem"]
PHASES = ("building it", "Gymnasium's checker", "two copies with the same seed", "random play")
CLOCK, PHASE, EPISODE, STEP = range(4)  # places of what the watching process sees
_COPIED_STEPS = 300  # of each copy
_MOST_WARNINGS = 4
_LARGE = 100.0  # of a component of an observation


class Remark(NamedTuple):
    """One line of the report."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""  # what to change


class Examination:
    """Plays an environment and sends findings, and facts that the rest of the report needs."""

    def __init__(self, request: dict[str, Any], send: Callable[[dict[str, Any]], None], watched: Any) -> None:
        self.name: str = request["env"]
        self.steps, self.seconds, self.seed = request["steps"], request["seconds"], request["seed"]
        self.request, self._send, self._watched = request, send, watched

    def run(self) -> None:
        """All phases; the first that fails ends it."""
        try:
            with self._phase(0):
                raw = self._raw()
            if raw is not None:
                with self._phase(1):
                    self._gymnasiums_checker(raw)
            with self._phase(2):
                config = self._config()
                self._copies(config.rules)
            with self._phase(3):
                self._play(self._make(config.rules), config.recipe.schedule.gamma, config.recipe.clip_reward)
        except _Stop:
            return
        finally:
            self._send({"done": True})

    def tell(self, check: str, verdict: Verdict, found: str, advice: str = "") -> None:
        self._send({"finding": Remark(check, verdict, found, advice)._asdict()})

    def alive(self, episode: int = 0, step: int = 0) -> None:
        """The last call of the environment has returned."""
        watched = self._watched
        watched[CLOCK], watched[EPISODE], watched[STEP] = time.monotonic(), episode, step

    @contextmanager
    def _phase(self, number: int) -> Iterator[None]:
        """What the environment raises is a finding, and the end."""
        self._watched[PHASE] = number
        self.alive()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except UserError as error:
            if number == 0:
                self._send({"bad_input": str(error)})
            else:
                self.tell("values", "problem", str(error), "return what is accepted")
            raise _Stop from None
        except _Stop:
            raise
        except BaseException as error:
            self.tell(
                "errors", "problem", f"during {PHASES[number]}{self._place()} it raised {described(error)}", "fix it"
            )
            raise _Stop from None

    def _place(self) -> str:
        episode, step = int(self._watched[EPISODE]), int(self._watched[STEP])
        return f", episode {episode}, after step {step}," if episode else ""

    # --------------------------------------------------------------------------------------------- the environment

    def _raw(self) -> Any:
        """The user's environment as it is; None of those of this package. UserError if it cannot be built."""
        name = resolve(self.name)
        rules = with_arguments(name, default_rules(name), self.request["env_kwargs"], self.request["wrappers"])
        if not isinstance(rules, GymRules) or name.key.startswith("toy/"):
            make(name, rules, self.seed).close()  # its packages may be missing
            self.tell("interface", "ok", "an environment of this package")
            return None
        return wrapped(build(name.key, rules.arguments), rules.wrappers)

    def _config(self) -> Config:
        """The run that `c2d train` would start with."""
        try:
            config, spec = self._config_and_spec()
        except UserError as error:
            self.tell("spaces", "problem", str(error), "return what is accepted, or wrap it")
            raise _Stop from None
        self._send({"config": to_json(config), "spec": {each.name: getattr(spec, each.name) for each in fields(spec)}})
        return config

    def _config_and_spec(self) -> tuple[Config, EnvSpec]:
        asked = self.request
        arguments: dict[str, Any] = {name: asked[name] for name in ("env_kwargs", "wrappers")}
        config = default_config(asked["env"], asked["recipe"], **arguments)
        return config, spec_of(config.env, config.rules)

    def _make(self, rules: Rules) -> Environment:
        return make(self.name, rules, self.seed)

    def _gymnasiums_checker(self, raw: Any) -> None:
        from gymnasium.utils.env_checker import check_env

        subject = raw if self.request["wrappers"] else getattr(raw, "unwrapped", raw)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                check_env(subject, skip_render_check=True, skip_close_check=True)
            except Exception as error:
                masked = self._masked()
                self.tell(
                    "interface",
                    "note" if masked else "problem",
                    f"Gymnasium's checker: {described(error, place=False)}",
                    "it takes no notice of action masks: perhaps the action was illegal" if masked else _INTERFACE,
                )
                return
            finally:
                raw.close()
        said = [" ".join(_plain(str(warning.message)).split()) for warning in caught]
        said = [text for text in dict.fromkeys(said) if "different from the unwrapped version" not in text]
        for text in said[:_MOST_WARNINGS]:
            advice = "harmless for vectors; declare the range if you know it" if "infinity" in text else ""
            self.tell("interface", "note", f"Gymnasium's checker: {text}", advice)
        if not said:
            self.tell("interface", "ok", "Gymnasium's checker finds nothing")

    def _masked(self) -> bool:
        """Whether the environment says which actions are legal."""
        try:
            return self._config_and_spec()[1].masked
        except UserError:
            return False

    # ------------------------------------------------------------------------------------------------- determinism

    def _copies(self, rules: Rules) -> None:
        """Two copies with one seed must agree in everything; one with another seed may."""
        traces = [self._trace(make(self.name, rules, seed)) for seed in (self.seed, self.seed, self.seed + 1)]
        first, second, other = traces
        steps = len(first) - 1
        apart = next((place for place, (a, b) in enumerate(zip(first, second, strict=True)) if a != b), None)
        if apart is None:
            same = "; another seed plays alike, so nothing is random" if first == other else ""
            self.tell("seed", "ok", f"two copies with one seed and the same {plural(steps, 'action')} agree{same}")
            return
        names = ("observation", "reward", "end", "end", "next observation", "score")
        a, b = first[apart], second[apart]
        what = " and ".join(dict.fromkeys(name for name, one, two in zip(names, a, b, strict=False) if one != two))
        at = f"after step {apart}" if apart else "at the first reset"
        self.tell(
            "seed",
            "problem",
            f"two copies with one seed and the same actions differ {at}: {what}",
            "draw random numbers from self.np_random alone, after super().reset(seed=seed); copies must share nothing",
        )

    def _trace(self, env: Environment) -> list[list[Any]]:
        rng = np.random.default_rng([self.seed, 1])
        opening = env.reset()
        self.alive(1, 0)
        trace: list[list[Any]] = [[opening.frame.tobytes()]]
        legal = opening.legal
        for number in range(min(self.steps, _COPIED_STEPS)):
            step = env.step(_random_action(rng, env.spec.actions, legal))
            self.alive(1, number + 1)
            trace.append(digest(step))
            legal = step.legal if step.reset is None else step.reset.legal
        env.close()
        return trace

    # ------------------------------------------------------------------------------------------------- random play

    def _play(self, env: Environment, gamma: float, clip: float | None) -> None:
        rng = np.random.default_rng([self.seed, 2])
        seen = _Seen(env.spec.frame_shape)
        opening = env.reset()
        self.alive(1, 0)
        seen.frame(opening.frame)
        legal, began, spent, episode, within = opening.legal, time.monotonic(), 0.0, 1, 0
        while len(seen.rewards) < self.steps and time.monotonic() - began < self.seconds:
            action = _random_action(rng, env.spec.actions, legal)
            start = time.perf_counter()
            step = env.step(action)
            spent += time.perf_counter() - start
            seen.step(step)
            within += 1
            if step.reset is not None:
                episode, within = episode + 1, 0
            self.alive(episode, within)
            legal = step.legal if step.reset is None else step.reset.legal
        env.close()
        outside = getattr(env, "outside", None)
        for finding in (*seen.episodes(self.name), *seen.reward_findings(), *seen.observations(env, outside)):
            self._send({"finding": finding._asdict()})
        if len(seen.rewards) < self.steps:
            self.tell(
                "play", "note", f"only {len(seen.rewards):,} of {self.steps:,} steps within {self.seconds:g} s",
                "judge rewards and lengths by more steps: --seconds",
            )  # fmt: skip
        self._send({"facts": seen.facts(gamma, clip) | {"seconds_per_step": spent / max(len(seen.rewards), 1)}})


class _Stop(Exception):
    """Nothing further can be found out."""


class _Seen:
    """What random play showed."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.rewards: list[float] = []
        self.ends: list[tuple[int, bool]] = []  # steps of each whole episode, and whether it was truncated
        self._length = 0
        self.image = len(shape) == 3
        rows = shape[0]  # components of a vector, channels of an image
        self.low, self.high = np.full(rows, np.inf), np.full(rows, -np.inf)
        self.ended_at: list[int] = []  # steps made when an episode ended

    def frame(self, frame: np.ndarray) -> None:
        rows = frame.reshape(len(frame), -1)
        self.low, self.high = np.minimum(self.low, rows.min(1)), np.maximum(self.high, rows.max(1))

    def step(self, step: Step) -> None:
        self.rewards.append(step.reward)
        self.frame(step.frame)
        self._length += 1
        if step.reset is not None:
            self.ends.append((self._length, step.truncated))
            self.ended_at.append(len(self.rewards))
            self._length = 0
            self.frame(step.reset.frame)

    def episodes(self, name: str) -> Iterator[Remark]:
        lengths = [length for length, _ in self.ends]
        cut = sum(truncated for _, truncated in self.ends)
        if not lengths:
            yield Remark(
                "episodes", "note", f"none ended within {plural(len(self.rewards), 'step')} of random play",
                "scores are those of whole games: give it an end, or --rules.cap-steps N (c2d evaluate: --cap-steps N)",
            )  # fmt: skip
            return
        text = (
            f"{plural(len(lengths), 'episode')} of {min(lengths):,} to {max(lengths):,} steps, "
            f"mean {np.mean(lengths):,.1f}; {cut:,} truncated, {len(lengths) - cut:,} terminated"
        )
        if cut == 0 and len(lengths) >= 5 and min(lengths) == max(lengths) >= 5:
            yield Remark(
                "episodes", "note", f"{text}: all terminated after the same number of steps, as by a time limit",
                "if it is a time limit, return truncated=True and terminated=False there: then the value of what would "
                "have followed counts; or observe the time that is left",
            )  # fmt: skip
            return
        yield Remark("episodes", "ok", text)

    def reward_findings(self) -> Iterator[Remark]:
        rewards = np.array(self.rewards)
        share = float((rewards != 0).mean())
        text = f"{rewards.min():g} to {rewards.max():g}, not 0 in {100 * share:.3g} % of steps"
        if share == 0:
            yield Remark(
                "rewards", "note", f"random play earned none in {plural(len(rewards), 'step')}",
                "exploration must find the first reward by chance: train longer, or give rewards on the way",
            )  # fmt: skip
        elif share < 0.001:
            yield Remark(
                "rewards", "note", text, "rare: the random history should hold some (--schedule.random-history)"
            )
        else:
            yield Remark("rewards", "ok", text)

    def observations(self, env: Environment, outside: str | None) -> Iterator[Remark]:
        if outside is not None:
            told = outside.partition(": ")[2].partition("; observations are used")[0]
            yield Remark("observations", "problem", told, "declare the range that occurs; images are scaled by it")
        spec, unit = env.spec, "channel" if self.image else "component"
        constant = np.flatnonzero(self.low == self.high).tolist()
        shape = f"{spec.frame_dtype} {list(spec.frame_shape)}, {self.low.min():g} to {self.high.max():g} in play"
        if len(constant) == len(self.low):
            yield Remark("observations", "problem", f"{shape}: they never change", "return what the state is")
            return
        found: list[tuple[str, str]] = []
        if constant:
            shown = ", ".join(map(str, constant[:8])) + (", …" if len(constant) > 8 else "")
            which = f"{unit}{'s' * (len(constant) > 1)} {shown} never changed"
            found.append((which, "leave out what is constant, unless it changes later in training"))
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        if not self.image and size.max() > _LARGE:
            large = int(size.argmax())
            found.append((f"component {large} reaches {size[large]:,.0f}", "scale components to about -1 to 1"))
        if self.image and spec.frame_dtype == "float32" and size.max() > 1.5:
            found.append(
                (f"images reach {size.max():g}", "declare finite bounds in the Box: images are scaled by them")
            )
        if self.image and spec.frame_dtype == "uint8" and spec.family == "gym" and 0 < size.max() <= 3:
            found.append((f"bytes reach only {size.max():g} of 255", "return float32: bytes are divided by 255"))
        for text, advice in found:
            yield Remark("observations", "note", f"{shape}: {text}", advice)
        if not found and outside is None:
            yield Remark("observations", "ok", shape)

    def facts(self, gamma: float, clip: float | None) -> dict[str, Any]:
        rewards = np.array(self.rewards)
        learned = rewards if clip is None else rewards.clip(-clip, clip)
        returns = self._returns(learned, gamma)
        values, counts = np.unique(rewards, return_counts=True)
        edges = np.histogram_bin_edges(rewards, 8)
        if len(values) <= 8:
            histogram = [[f"{value:g}", int(count)] for value, count in zip(values, counts, strict=True)]
        else:
            binned = np.histogram(rewards, edges)[0]
            histogram = [
                [f"{low:.4g} to {high:.4g}", int(count)]
                for low, high, count in zip(edges[:-1], edges[1:], binned, strict=True)
            ]
        longest = max((length for length, _ in self.ends), default=None)
        scores = [float(part.sum()) for part in np.split(rewards, self.ended_at)[: len(self.ends)]]
        return {
            "steps": len(rewards),
            "episodes": len(self.ends),
            "longest": longest if longest is None or not self.rewards else max(longest, self._length),
            "mean_score": float(np.mean(scores)) if scores else None,
            "clipped": float((np.abs(rewards) > clip).mean()) if clip is not None else 0.0,
            "largest_reward": float(np.abs(learned).max()),
            "returns": [float(returns.min()), float(returns.max())],
            "histogram": histogram,
        }

    def _returns(self, rewards: np.ndarray, gamma: float) -> np.ndarray:
        """Discounted returns from every step to the end of its episode, or to the end of play."""
        returns, following, ended = np.empty(len(rewards)), 0.0, set(self.ended_at)
        for place in range(len(rewards) - 1, -1, -1):
            if place + 1 in ended:
                following = 0.0
            following = returns[place] = rewards[place] + gamma * following
        return returns


_INTERFACE = "follow Gymnasium's interface: gymnasium.Env, its spaces, reset(seed=, options=) and step"


def _random_action(rng: np.random.Generator, actions: int, legal: np.ndarray | None) -> int:
    if legal is None:
        return int(rng.integers(actions))
    return int(rng.choice(np.flatnonzero(legal)))


def described(error: BaseException, place: bool = True) -> str:
    """An exception of the user's code in a line, with where it was raised."""
    text = f"{type(error).__name__}: {' '.join(_plain(str(error)).split())[:300]}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})" if place and frames else text


def _plain(text: str) -> str:
    """Without the colors of Gymnasium's warnings, and without its prefix."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).removeprefix("WARN: ")
