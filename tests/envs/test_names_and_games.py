import math
import subprocess
import sys

import pytest

from c2d.envs.games import BENCHMARK, GAMES, human_normalized
from c2d.envs.make import default_rules, make
from c2d.envs.names import EnvName, resolve
from c2d.envs.protocols import PROTOCOLS, AtariRules, GymRules, MinAtarRules
from c2d.errors import UserError


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("breakout", "atari/breakout"),
        ("atari/breakout", "atari/breakout"),
        ("Breakout", "atari/breakout"),
        ("ALE/Breakout-v5", "atari/breakout"),
        ("BreakoutNoFrameskip-v4", "atari/breakout"),
        ("BreakoutDeterministic-v4", "atari/breakout"),
        ("Breakout-v4", "atari/breakout"),
        ("bank_heist", "atari/bankheist"),
        ("BankHeist", "atari/bankheist"),
        ("atari/Bank-Heist", "atari/bankheist"),
        ("ALE/UpNDown-v5", "atari/upndown"),
        ("gym/ALE/Breakout-v5", "atari/breakout"),
        ("minatar/breakout", "minatar/breakout"),
        ("MinAtar/Breakout-v1", "minatar/breakout"),
        ("MinAtar/SpaceInvaders-v0", "minatar/space_invaders"),
        ("minatar/space-invaders", "minatar/space_invaders"),
        ("minatar/spaceinvaders", "minatar/space_invaders"),
        ("gym/CartPole-v1", "gym/CartPole-v1"),
        ("CartPole-v1", "gym/CartPole-v1"),
        ("my_package.my_module:MyEnv", "gym/my_package.my_module:MyEnv"),
        ("gym/my_module:MyEnv", "gym/my_module:MyEnv"),
        ("toy/bimodal", "toy/bimodal"),
    ],
)
def test_every_spelling_resolves_and_canonical_names_resolve_to_themselves(text: str, canonical: str) -> None:
    name = resolve(text)
    assert name.canonical == canonical
    assert resolve(canonical) == name


def test_every_game_of_the_table_resolves_from_all_its_names() -> None:
    for key, game in GAMES.items():
        wanted = EnvName("atari", key, f"atari/{key}")
        spellings = (key, game.rom, game.gym, f"ALE/{game.gym}-v5", f"{game.gym}NoFrameskip-v4")
        assert all(resolve(spelling) == wanted for spelling in spellings)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("braekout", "'breakout'"),
        ("atari/breakot", "'breakout'"),
        ("ALE/Breakuot-v5", "'breakout'"),
        ("mspacmann", "'mspacman'"),
        ("minatar/brekout", "'breakout'"),
        ("minatr/breakout", "'minatar/breakout'"),
        ("gym/CartPol-v1", "'CartPole-v1'"),
        ("CartPole", "'CartPole-v1'"),
        ("toy/bimdal", "'bimodal'"),
    ],
)
def test_misspelt_names_get_a_suggestion_in_one_line(text: str, suggestion: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(text)
    message = str(caught.value)
    assert f"Did you mean {suggestion}" in message
    assert f'"{text}"; accepted: ' in message and "\n" not in message


def test_a_family_without_a_game_is_rejected() -> None:
    for text, accepted in (("minatar", "asterix, breakout"), ("Atari", "62 games"), ("gym", "a registered id")):
        with pytest.raises(UserError, match=f"{text}.*{accepted}") as caught:
            resolve(text)
        assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "zzzzqqqq", "gym/zzzzqqqq", "minatar/", "atari/", "no such.module:Env", "a.b:"])
def test_hopeless_names_say_what_is_accepted(text: str) -> None:
    with pytest.raises(UserError, match=r"; accepted: "):
        resolve(text)


def test_the_table_has_the_55_games_with_scores_and_action_counts() -> None:
    assert len(BENCHMARK) == 55 and len(GAMES) == 62
    for key in BENCHMARK:
        game = GAMES[key]
        assert game.random is not None and game.human is not None and game.human > game.random
        assert game.actions is not None and 3 <= game.actions <= 18
    assert not {"defender", "surround", "airraid"} & set(BENCHMARK)
    assert (GAMES["videopinball"].random, GAMES["tennis"].human) == (16256.9, -8.3)


def test_human_normalized_is_0_at_random_1_at_human_and_none_without_scores() -> None:
    assert human_normalized("breakout", 1.7) == 0.0
    assert human_normalized("breakout", 30.5) == 1.0
    assert math.isclose(human_normalized("pong", 20.0) or 0.0, 40.7 / 35.3)
    assert human_normalized("pooyan", 1000.0) is None
    with pytest.raises(UserError, match="'breakout'"):
        human_normalized("breakot", 1.0)


def test_names_games_and_rules_import_nothing_heavy() -> None:
    code = (
        "import sys, c2d.envs.names, c2d.envs.games, c2d.envs.protocols, c2d.envs.make;"
        "c2d.envs.names.resolve('ALE/Breakout-v5'); c2d.envs.names.resolve('minatar/freeway');"
        "heavy = ('torch', 'ale_py', 'gymnasium', 'cv2', 'minatar', 'matplotlib');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_default_rules_and_rules_of_the_wrong_family() -> None:
    assert default_rules("pong") == PROTOCOLS["c2d-paper"] == AtariRules()
    assert default_rules("minatar/asterix") == MinAtarRules()
    assert default_rules("toy/skewed") == GymRules()
    with pytest.raises(
        UserError, match=r"rules for atari/pong are those of Gymnasium .*; accepted: the rules of Atari"
    ):
        make("pong", GymRules(), 0)


def test_protocols_are_what_they_are_called() -> None:
    paper, old, new = (PROTOCOLS[name] for name in ("c2d-paper", "dopamine", "dopamine-2024"))
    assert (paper.life_loss_ends_episode, paper.truncation, paper.opening_count) == (True, "drop", 2)
    assert (old.life_loss_ends_episode, old.truncation, old.opening_count) == (False, "terminal", 1)
    assert (paper.cap_steps, old.cap_steps, new.cap_steps) == (27_000, 27_000, None)
    assert (paper.cap_frames, old.cap_frames, new.cap_frames) == (None, None, 100_000)
    assert {rules.sticky for rules in PROTOCOLS.values()} == {0.25}


@pytest.mark.parametrize(
    "setting",
    [
        {"sticky": 1.5},
        {"sticky": float("nan")},
        {"cap_steps": 0},
        {"cap_frames": -1},
        {"truncation": "forget"},
        {"action_repeat": 0},
        {"frame_size": 4},
        {"stack": 0},
        {"noop_max": -1},
        {"opening_count": 5},
        {"resize": "cubic"},
    ],
)
def test_rules_out_of_range_are_rejected_by_name(setting: dict[str, object]) -> None:
    ((name, value),) = setting.items()
    with pytest.raises(UserError, match=f"--rules.{name.replace('_', '-')} is {value}; accepted: "):
        AtariRules(**setting)  # type: ignore[arg-type]
