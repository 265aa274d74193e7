"""What people see while a run goes on, and what they are told to type."""

import io
import re
import shlex

from rich.console import Console

from c2d.cli.train import read
from c2d.config import Config
from c2d.recipes.parts import PhiSpec
from c2d.recipes.recipe import Recipe
from c2d.runs.layout import RunDir
from c2d.training import run as run_module
from c2d.training.progress import ProgressDisplay
from tests.training.short_runs import short_config
from tests.training.test_many_environments import several


def shown(tmp_path, envs=1, terminal=True):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, height=40, soft_wrap=True, highlight=False)
    config = several(short_config("gym/CartPole-v1", tmp_path / "run", iterations=3, steps=40 * envs), envs)
    run_module.run(config, [ProgressDisplay(console)])
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


def test_the_live_display_is_never_shown_as_markup(tmp_path):
    """Lines printed above it are plain text, and whoever prints them has the display drawn again."""
    seen = shown(tmp_path)
    assert "iteration 3/3 | 120 steps" in seen and "steps/s" in seen  # its lines, and itself
    assert seen.count("iteration 1/3") > 1  # drawn while the line of the first iteration was printed
    assert "[dim]" not in seen and "[bold]" not in seen


def test_several_environments_and_the_games_of_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr("c2d.training.progress._LINE", 0.0)  # a line at every step
    seen = shown(tmp_path / "live", envs=4)
    assert re.search(r"steps/s \d+ \(4 environments\)", seen)
    lines = shown(tmp_path / "lines", envs=4, terminal=False)
    assert re.search(r"\| steps/s \d+ \(4 environments\) \|", lines)
    ends = re.findall(r"over (\d+) games? .* steps/s of 4 environments\n", lines)
    games = (tmp_path / "lines" / "run" / "episodes.csv").read_text().splitlines()[1:]
    assert len(ends) == 3 and sum(map(int, ends)) == len(games) > 4
    assert {game[-1] for game in games} == {"0", "1", "2", "3"}
    assert not re.search(r"\d environment", shown(tmp_path / "one", terminal=False))


def test_commands_can_be_typed_as_they_are_printed(tmp_path):
    path = tmp_path / "with a space and ü"
    own = Config("gym/my_package.my_module:MyEnv", recipe=Recipe(phi=PhiSpec("my_module:my_phi")))
    words = shlex.split(RunDir(path).command("evaluate", own))
    assert words == ["c2d", "evaluate", str(path), "--env", "my_package.my_module:MyEnv", "--trust", "my_module:my_phi"]
    assert RunDir("runs/a").command("resume", Config("atari/breakout")) == "c2d resume runs/a"


def test_the_first_line_is_a_command_with_every_changed_setting(tmp_path):
    first = shown(tmp_path).splitlines()[0].partition(" | ")[0]
    assert first.startswith("c2d train gym/CartPole-v1 --recipe c2d --seed 1 --iterations 3 --")
    changed = read(shlex.split(first)[2:])
    assert changed.recipe == short_config("gym/CartPole-v1", tmp_path / "run", iterations=3, steps=40).recipe
