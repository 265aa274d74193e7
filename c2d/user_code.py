"""The user's own code. It is imported when the user names it in this process, never because a file names it.

Names have the form `my_package.my_module:MyHead`. Modules are looked for in the working directory too.
"""

from __future__ import annotations

import importlib
import json
import os
import stat
import sys
import traceback
from pathlib import Path
from typing import Any

from c2d.errors import UserError, did_you_mean

TRUSTED: set[str] = set()


def trust(name: str) -> None:
    """The user named `my_package.my_module:MyHead`, on the command line or in Python. Other names mean nothing here."""
    if is_user_code(name):
        TRUSTED.add(name)


def is_user_code(name: object) -> bool:
    return isinstance(name, str) and ":" in name


def require_trusted(name: str, what: str, python: str = "") -> None:
    """Reject code that only a file names. `python`: how it is named from Python, by default by importing its module."""
    if not is_trusted(name):
        module = name.partition(":")[0]
        raise UserError(
            f'{what} is "{name}", code that is imported only if you name it yourself; if you trust it, add '
            f"--trust {name} (Python: {python or f'import {module} first'}), or once for this directory: "
            f"c2d trust {module}"
        )


def is_trusted(name: str) -> bool:
    """Whether the user named this code, now or for all commands in this directory."""
    if name in TRUSTED:
        return True
    module = name.partition(":")[0]
    if is_user_code(name) and any(f"{module}.".startswith(f"{known}.") for known in trusted_modules()):
        TRUSTED.add(name)  # also for the processes of a sweep
        return True
    return False


# ------------------------------------------------------------------------------------ modules trusted for a directory
#
# One file of the user's, which `c2d trust` writes: {"/home/me/project": ["my_module"]}. It counts for commands that are
# started in that directory and nowhere else, because modules are looked for in the working directory.

_LARGEST = 1 << 20  # bytes


def trust_file() -> Path:
    """In the user's configuration directory."""
    if own := os.environ.get("C2D_CONFIG_DIR"):
        return Path(own) / "trusted.json"
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "c2d" / "trusted.json"


def trusted_modules() -> list[str]:
    """Modules that commands in this directory may import."""
    try:
        return _trusted_by_directory().get(os.getcwd(), [])
    except FileNotFoundError:  # the directory is gone
        return []


def change_trusted_modules(modules: list[str]) -> None:
    """Those of this directory from now on."""
    file, known = trust_file(), _trusted_by_directory()
    known[os.getcwd()] = sorted(set(modules))
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            json.dump({place: names for place, names in known.items() if names}, opened, indent=1)
        new.replace(file)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None


def _trusted_by_directory() -> dict[str, list[str]]:
    file = trust_file()
    try:
        with open(file, encoding="utf-8") as opened:
            info = os.fstat(opened.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_uid not in (os.getuid(), 0) or info.st_mode & 0o022:
                raise UserError(f"{file} is not used: others can write to it; accepted: chmod 600, and your own")
            value = json.loads(opened.read(_LARGEST))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}; remove it, and run c2d trust again") from None
    lists = value.items() if isinstance(value, dict) else ()
    return {str(place): [name for name in names if isinstance(name, str)] for place, names in lists
            if isinstance(names, list)}  # fmt: skip


def imported(name: str, what: str = "φ") -> Any:
    """What `my_package.my_module:MyHead` stands for. The caller makes sure that the user named it."""
    module, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:  # a console command does not look in the working directory by itself
        sys.path.append(here)
    try:
        loaded = importlib.import_module(module)
    except (ModuleNotFoundError, ValueError) as error:
        raise UserError(f'{what} "{name}" cannot be imported from {here} or the Python path: {error}') from None
    except Exception as error:
        raise UserError(f'{what} "{name}" cannot be imported: {cause_of(error)}') from None
    if not hasattr(loaded, attribute):
        hint = did_you_mean(attribute, [item for item in vars(loaded) if not item.startswith("_")])
        raise UserError(f'{what} "{name}" cannot be imported: "{module}" has no "{attribute}".{hint}')
    return getattr(loaded, attribute)


def cause_of(error: Exception) -> str:
    """What went wrong in the user's code, and where."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, SyntaxError):  # has its place in the text
        return text
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text} ({last.filename}, line {last.lineno})"
