"""c2d check-env: each environment has one thing wrong, which is the one that is found."""

import json

import pytest

import c2d
from c2d.bench import env_check
from c2d.cli.main import main
from tests.bench import checked_envs

HERE = "tests.bench.checked_envs"


@pytest.fixture
def quick(monkeypatch):
    """Updates are not measured."""
    monkeypatch.setattr(env_check, "_seconds_of_learning", lambda config, spec: 0.001)


def check(name, **options):
    return env_check.check_env(f"{HERE}:{name}", **{"steps": 600, "timeout": 5.0, **options})


def unlike_ok(report):
    return [(finding.check, finding.verdict) for finding in report.findings if finding.verdict != "ok"]


def found(report, name):
    return " | ".join(f"{finding.found} → {finding.advice}" for finding in report.findings if finding.check == name)


def test_a_good_environment_is_good(quick):
    report = check("Fine")
    assert unlike_ok(report) == [] and report.verdict == "ok"
    assert [finding.check for finding in report.findings] == [
        "interface", "seed", "episodes", "rewards", "observations", "actions", "returns", "network", "memory", "speed"
    ]  # fmt: skip
    assert "two copies with one seed and the same 300 actions agree" in found(report, "seed")
    assert report.facts["steps"] == 600 and sum(count for _, count in report.facts["histogram"]) == 600


CASES = {
    "GlobalRandomness": ("seed", "problem", "differ after step 1: reward"),
    "Shared": ("seed", "problem", "differ after step 1: reward"),
    "LimitAsEnd": ("episodes", "note", "all terminated after the same number of steps, as by a time limit"),
    "NoEnd": ("episodes", "note", "none ended within 600 steps of random play"),
    "Poor": ("rewards", "note", "random play earned none in 600 steps"),
    "Rich": ("returns", "problem", "--head.unit auto, which finds the scale of rewards, or smaller rewards"),
    "Generous": ("returns", "note", "rewards of the largest size at every step would add up to"),
    "Tiny": ("returns", "note", "they are tiny beside it"),
    "Outside": ("observations", "problem", "leaves its declared Box"),
    "Constant": ("observations", "note", "component 1 never changed"),
    "Frozen": ("observations", "problem", "they never change"),
    "Large": ("observations", "note", "component 1 reaches"),
    "OneAction": ("actions", "problem", "there is nothing to decide"),
    "BitImage": ("observations", "note", "bytes reach only 1 of 255"),
    "UnboundedImage": ("observations", "note", "declare finite bounds in the Box"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found(quick, name):
    where, verdict, text = CASES[name]
    report = check(name)
    assert (where, verdict) in unlike_ok(report) and text in found(report, where), report.findings
    problems = [place for place, kind in unlike_ok(report) if kind == "problem" and place != "interface"]
    assert problems == ([where] if verdict == "problem" else []), report.findings


FATAL = {
    "NotANumber": ("values", "episode 1, step 3: the reward is nan; accepted: a finite"),
    "Raises": ("errors", "random play, episode 1, after step 4, it raised ZeroDivisionError: a wall of the maze ("),
    "Quits": ("errors", "it raised SystemExit: 3 ("),
    "Hangs": ("errors", "a call did not return within 0.5 s ("),
    "Dies": ("errors", "the process ended (signal SIGSEGV; "),
    "Old": ("values", "step returned a tuple of 4; accepted: (observation, reward, terminated, truncated, info)"),
    "Continuous": ("spaces", "has the action space Box(-1.0, 1.0, (3,), float32); accepted: Discrete"),
}


@pytest.mark.parametrize("name", FATAL)
def test_what_ends_it_is_a_finding_and_no_traceback(name, capfd):
    where, text = FATAL[name]
    report = check(name, timeout=0.5 if name == "Hangs" else 5.0)
    text = text.replace("random play, episode 1", "two copies with the same seed, episode 1")
    assert text in found(report, where) and report.verdict == "problem" and report.facts == {}
    assert capfd.readouterr() == ("", "")


def test_only_legal_actions_are_taken(quick):
    report = check("Strict")
    assert report.facts["steps"] == 600 and "3 discrete actions, with a mask" in found(report, "actions")
    assert report.verdict == "note" and "AssertionError: illegal → it takes no notice of action masks" in (
        found(report, "interface")
    )


def test_the_seed_decides_everything_but_the_speed(quick, tmp_path):
    def facts(seed):
        report = check("Fine", seed=seed)
        return [finding for finding in report.findings if finding.check != "speed"], {
            key: value for key, value in report.facts.items() if key != "seconds_per_step"
        }

    assert facts(1) == facts(1) != facts(2)


def test_arguments_wrappers_recipes_and_classes(quick):
    short = check("Fine", env_kwargs={"size": 2})
    assert short.facts["episodes"] > check("Fine").facts["episodes"]
    assert check("Fine", wrappers=[f"{HERE}:doubled"]).facts["largest_reward"] == 2.0
    clipped = check("Rich", recipe="c51")
    assert "of rewards clipped to ±1" in found(clipped, "returns") and clipped.facts["largest_reward"] == 1.0
    assert "atoms reach ±10" in found(clipped, "returns") and clipped.verdict != "problem"
    assert "no bound" in found(check("Rich", recipe="qr-dqn-conjugated"), "returns")

    class Local(checked_envs.Fine):
        pass

    assert c2d.check_env(Local, steps=50).verdict == "ok"


def test_the_speed_of_training_is_measured():
    for name in ("toy/bimodal", "minatar/breakout"):
        report = env_check.check_env(name, steps=50, recipe="dqn")
        assert report.verdict != "problem" and "training about" in found(report, "speed")
        assert "an environment of this package" in found(report, "interface")


def test_the_command_prints_a_table_or_json_and_its_exit_code_tells(quick, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["check-env", f"{HERE}:Loud", "--steps", "100"]) == 0
    printed, errors = capfd.readouterr()
    assert errors == "" and "hello" not in printed and "\x1b" not in printed
    lines = printed.splitlines()
    assert lines[0] == f"gym/{HERE}:Loud: 100 random steps, seed 0" and lines[2].startswith("ok       interface ")
    assert "rewards of random play" in lines and all(len(line) <= 100 for line in lines)
    with pytest.raises(SystemExit) as exit:
        main(["check-env", f"{HERE}:Outside", "--steps", "100", "--json", "--env-kwargs.size", "3"])
    report = json.loads(capfd.readouterr().out)
    assert exit.value.code == 1 and report["verdict"] == "problem" and report["play"]["steps"] == 100
    assert {"check", "verdict", "found", "advice"} == set(report["findings"][0])


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "no environment given; accepted: c2d check-env ENV"),
        (["gym/CartPol-v1"], 'unknown Gymnasium environment "gym/CartPol-v1"'),
        ([f"{HERE}:Nothing"], 'has no "Nothing"'),
        ([f"{HERE}:Unwilling"], "failed when called without arguments: RuntimeError: no license"),
        ([f"{HERE}:Fine", "--env-kwargs.height", "3"], 'has no argument "height"; accepted: size'),
        ([f"{HERE}:Fine", "--recipe", "c2e"], "Did you mean"),
        ([f"{HERE}:Fine", "--steps", "0"], "--steps is 0; accepted: 1 or greater"),
        ([f"{HERE}:Fine", "--timeout", "-1"], "--timeout is -1; accepted: above 0"),
    ],
)
def test_bad_input_is_one_line(words, message, capfd):
    assert main(["check-env", *words]) == 2
    _, error = capfd.readouterr()
    assert message in error and error.count("\n") == 1
