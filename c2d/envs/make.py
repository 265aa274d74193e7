"""Builds an environment from its name and its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from c2d.envs.names import EnvName, name_of, resolve
from c2d.envs.protocols import PROTOCOLS, AtariRules, GymRules, MinAtarRules, Rules, as_arguments
from c2d.envs.spec import Environment, EnvSpec
from c2d.envs.toy import MASKED
from c2d.errors import UserError

__all__ = ["Rules", "default_rules", "make", "spec_of"]

_RULES: dict[str, type[AtariRules] | type[MinAtarRules] | type[GymRules]] = {
    "atari": AtariRules,
    "minatar": MinAtarRules,
    "gym": GymRules,
}
_FAMILIES = {AtariRules: "Atari", MinAtarRules: "MinAtar", GymRules: "Gymnasium and toy"}


def default_rules(name: str | EnvName) -> Rules:
    """The rules used when none are given: the paper's for Atari."""
    family = (resolve(name) if isinstance(name, str) else name).family
    return PROTOCOLS["c2d-paper"] if family == "atari" else _RULES[family]()


def spec_of(name: str | EnvName, rules: Rules | None = None) -> EnvSpec:
    """The spec of an environment. Atari and MinAtar have tables; others are built once to read it."""
    name, rules = _resolved(name, rules)
    if isinstance(rules, AtariRules):
        from c2d.envs.games import atari_spec

        return atari_spec(name.key, rules)
    if isinstance(rules, MinAtarRules):
        from c2d.envs.minatar import minatar_spec

        return minatar_spec(name.key, rules)
    environment = make(name, rules, seed=0)
    try:
        return environment.spec
    finally:
        environment.close()


def with_arguments(name: EnvName, rules: Rules, env_kwargs: Mapping[str, Any], wrappers: Sequence[str]) -> Rules:
    """The rules with arguments of the environment, and with wrappers around it."""
    if not env_kwargs and not wrappers:
        return rules
    if not isinstance(rules, GymRules) or name.key.startswith("toy/"):
        accepted = "a registered Gymnasium environment, or a class as my_package.my_module:MyEnv"
        raise UserError(f"--env-kwargs and --wrapper do not fit {name.canonical}; accepted: {accepted}")
    return replace(rules, env_kwargs=as_arguments(env_kwargs), wrappers=tuple(wrappers))


def _resolved(name: str | EnvName, rules: Rules | None) -> tuple[EnvName, Rules]:
    name = resolve(name) if isinstance(name, str) else name
    rules = default_rules(name) if rules is None else rules
    accepted = _RULES[name.family]
    if not isinstance(rules, accepted):
        raise UserError(
            f"the rules for {name.canonical} are those of {_FAMILIES[type(rules)]} environments; "
            f"accepted: the rules of {_FAMILIES[accepted]} environments"
        )
    return name, rules


def make(name: str | EnvName | Callable[..., Any], rules: Rules | None, seed: int) -> Environment:
    """One environment, by its name or by a class or function of your own. Only its family's packages are imported."""
    name, rules = _resolved(name if isinstance(name, EnvName) else name_of(name), rules)
    if isinstance(rules, AtariRules):
        from c2d.envs.atari import AtariEnv

        return AtariEnv(name.key, rules, seed)
    if isinstance(rules, MinAtarRules):
        from c2d.envs.minatar import MinAtarEnv

        return MinAtarEnv(name.key, rules, seed)
    if name.key == f"toy/{MASKED}":
        from c2d.envs.gymnasium import MaskedCartPole

        return MaskedCartPole(rules, seed)
    if name.key.startswith("toy/"):
        from c2d.envs.toy import ToyEnv

        return ToyEnv(name.key.removeprefix("toy/"), rules, seed)
    from c2d.envs.gymnasium import GymnasiumEnv

    return GymnasiumEnv(name.key, rules, seed)
