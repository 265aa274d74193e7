"""Builds an environment from its name and its rules."""

from __future__ import annotations

from c2d.envs.names import EnvName, resolve
from c2d.envs.protocols import PROTOCOLS, AtariRules, GymRules, MinAtarRules, Rules
from c2d.envs.spec import Environment, EnvSpec
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


def make(name: str | EnvName, rules: Rules | None, seed: int) -> Environment:
    """One environment. Only the packages of its family are imported."""
    name, rules = _resolved(name, rules)
    if isinstance(rules, AtariRules):
        from c2d.envs.atari import AtariEnv

        return AtariEnv(name.key, rules, seed)
    if isinstance(rules, MinAtarRules):
        from c2d.envs.minatar import MinAtarEnv

        return MinAtarEnv(name.key, rules, seed)
    if name.key.startswith("toy/"):
        from c2d.envs.toy import ToyEnv

        return ToyEnv(name.key.removeprefix("toy/"), rules, seed)
    from c2d.envs.gymnasium import GymnasiumEnv

    return GymnasiumEnv(name.key, rules, seed)
