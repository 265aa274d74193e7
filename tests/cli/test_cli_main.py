"""The command: its help, its imports, its errors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401, its OpenMP

from c2d import __version__
from c2d.cli import main as main_module
from c2d.cli.main import COMMANDS, main
from c2d.errors import UserError

HEAVY = ("torch", "numpy", "gymnasium", "ale_py", "tyro", "rich")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], []])
def test_help_lists_every_command(words, capsys):
    assert main(words) == (0 if words else 2)
    out = capsys.readouterr().out
    for name, (_, line) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line)}$", out, re.M)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"c2d {__version__}\n"


def test_python_m_is_the_command():
    done = subprocess.run([sys.executable, "-m", "c2d", "trian"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith('c2d: unknown command "trian"')


def test_every_command_has_a_function():
    import importlib

    for name, (target, _) in COMMANDS.items():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function or "main")), name


def test_unknown_command(capsys):
    assert main(["trian"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith('c2d: unknown command "trian"; accepted: quickstart, train, ')
    assert err.endswith(". Did you mean 'train'?\n")


@pytest.mark.parametrize(
    ("error", "code", "text"), [(UserError("no"), 2, "c2d: no\n"), (KeyboardInterrupt(), 130, "c2d: stopped\n")]
)
def test_errors_and_exit_codes(error, code, text, monkeypatch, capsys):
    class Module:
        @staticmethod
        def main(words):
            raise error

    monkeypatch.setattr(main_module.importlib, "import_module", lambda name: Module)
    assert main(["train"]) == code
    assert capsys.readouterr().err == text


def test_bugs_are_not_hidden(monkeypatch):
    class Module:
        @staticmethod
        def main(words):
            raise ZeroDivisionError

    monkeypatch.setattr(main_module.importlib, "import_module", lambda name: Module)
    with pytest.raises(ZeroDivisionError):
        main(["train"])


def test_a_closed_pipe_leaves_no_traceback():
    """As in `c2d --help | head -1`, with a help text larger than a pipe holds."""
    code = "import c2d.cli.main as m; text = m.usage() * 999; m.usage = lambda: text; m.entry()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(30) == 1


def openmp():
    """The file of OpenMP that this process has loaded, with PyTorch."""
    return next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PyTorch has libgomp on Linux only")
@pytest.mark.parametrize(
    ("chosen", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")],
    ids=["by default", "spins", "policy"],
)
def test_threads_do_not_spin_for_long(chosen, spins):
    """What the OpenMP of PyTorch was started with, by its own account, when a command has loaded it.

    With all of PyTorch by default, else its file alone, which is quick.
    """
    loading = f"__import__('ctypes').CDLL({openmp()!r})" if chosen else "__import__('torch')"
    code = f"import sys; import c2d.cli.main as m; m.main = lambda: {loading} and 0; m.entry()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environment |= {"OMP_DISPLAY_ENV": "verbose", **chosen}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr


def test_a_command_called_from_python_leaves_the_environment(capsys):
    before = dict(os.environ)
    main(["--version"])
    assert dict(os.environ) == before


@pytest.mark.parametrize("code", ["import c2d", "from c2d.cli.main import main; main(['--help'])"])
def test_light_imports(code):
    """Nothing heavy, which would take seconds, is imported."""
    check = f"; import sys; heavy = set({HEAVY}) & set(sys.modules); assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", code + check], check=True, capture_output=True)
