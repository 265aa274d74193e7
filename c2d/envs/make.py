"""From a name and rules to a playable environment."""

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


def default_rules(name: str | EnvName) -> Rules:
    """The rules used when none are given: the paper's for Atari."""
    family = (resolve(name) if isinstance(name, str) else name).family
    return PROTOCOLS["c2d-paper"] if family == "atari" else _RULES[family]()


def spec_of(name: str | EnvName, rules: Rules | None = None) -> EnvSpec:
    """The spec of an environment. Those of Atari and MinAtar are in tables; Gymnasium's is built once to learn it."""
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
    wanted = _RULES[name.family]
    if not isinstance(rules, wanted):
        raise UserError(f"{name.canonical} takes {wanted.__name__}, not {type(rules).__name__}.")
    return name, rules


def make(name: str | EnvName, rules: Rules | None, seed: int) -> Environment:
    """Build one environment; only the packages of its family are imported."""
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
