"""The direction of imports, the length of files, and that every module stands alone."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import c2d

ROOT = Path(c2d.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Who may be imported by whom: each part by those after it, and by itself.
ORDER = ["types", "errors", "user_code", "validation", "formatting", "files", "plotting", "native", "devices",
         "seeding", "envs", "recipes", "replay", "nets", "returns", "agents", "theory", "config", "runs", "cluster",
         "training", "evaluation", "sweep", "reporting", "bench", "web", "api", "cli", "__main__"]  # fmt: skip
BESIDE = {("replay", "nets"), ("nets", "returns"), ("replay", "returns")}  # equals that need not know each other
WITHOUT_TORCH = (
    "types",
    "errors",
    "user_code",
    "validation",
    "formatting",
    "files",
    "plotting",
    "envs",
    "recipes",
    "config",
    "runs",
    "reporting",
)
# Declarations of parts name what they build, which comes after them, and import it when they build it.
DECLARATIONS = {ROOT / "recipes" / name for name in ("part.py", "parts.py", "learning_parts.py")}


def part_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path):
    """Modules named in import statements, and whether they run when the file is imported (not under TYPE_CHECKING)."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            yield name, id(node) not in typing_only


def imports_at_once(path):
    """Modules named in the import statements of the file itself, not of its functions."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            yield node.module


def test_every_part_has_its_place():
    parts = {part_of(path) for path in FILES} - {"__init__"}
    assert parts <= set(ORDER), parts - set(ORDER)


def points_upward(part, name):
    """Whether a file of this part of the package may import what is named."""
    words = name.split(".")
    if words[0] != "c2d" or len(words) == 1 or words[1].startswith("__"):
        return True
    if words[1] not in ORDER:  # a name of the package, such as c2d.train
        return part == "cli"
    return ORDER.index(words[1]) <= ORDER.index(part) and (words[1], part) not in BESIDE


def test_imports_point_upward():
    assert not points_upward("envs", "c2d.nets.network") and points_upward("nets", "c2d.envs.spec")
    wrong = [
        f"{path} imports {name}"
        for path in FILES
        if part_of(path) != "__init__"  # the package itself imports lazily
        for name in (imports_at_once(path) if path in DECLARATIONS else (name for name, _ in imports(path)))
        if not points_upward(part_of(path), name)
    ]
    assert wrong == []
    assert "c2d.envs.spec" in imports_at_once(ROOT / "recipes" / "parts.py")


def test_no_file_is_long():
    assert [path for path in FILES if len(path.read_text().splitlines()) > 500] == []


def test_torch_is_not_named_where_it_has_no_place():
    for path in FILES:
        if part_of(path) in WITHOUT_TORCH:
            for name, runs in imports(path):
                assert not (runs and name.split(".")[0] == "torch"), f"{path} imports torch"


def test_torch_is_not_loaded_where_it_has_no_place():
    """What a file does not name may still come in by another: so in a process of its own."""
    names = [name for name in modules() if name.split(".")[1] in WITHOUT_TORCH]
    assert len(names) > 8
    code = f"import importlib, sys; [importlib.import_module(n) for n in {names}]; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


RAY = ROOT / "cluster" / "ray_connection.py"  # names Ray; others take it from there
ON_RAY = {
    ROOT / "sweep" / "launch.py",
    ROOT / "training" / "ray_transport.py",
}  # at once; others when needed


def test_ray_is_named_in_one_file_that_is_imported_when_needed():
    named = {
        path for path in FILES if "ray" in path.read_text() for name, _ in imports(path) if name.split(".")[0] == "ray"
    }
    assert named == {RAY}
    on_ray = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in {RAY, *ON_RAY}}
    assert {path for path in FILES if on_ray & set(imports_at_once(path))} == ON_RAY


def modules():
    return [module.name for module in pkgutil.walk_packages([str(ROOT)], "c2d.")]


def test_every_module_can_be_imported_and_train_stays_the_function(tmp_path):
    names = modules()
    assert len(names) > 40
    for name in names:
        importlib.import_module(name)
    assert callable(c2d.train) and c2d.train.__module__ == "c2d.api"
    from tests.training.short_runs import short_config

    for number in (1, 2):
        result = c2d.train(
            short_config("gym/CartPole-v1", tmp_path / str(number), iterations=1, steps=20), progress=False
        )
        assert result.state == "finished"
    assert callable(c2d.train) and c2d.train.__module__ == "c2d.api"


def test_no_two_modules_or_public_classes_share_a_name():
    """A command of the same name as what it calls is fine."""
    modules, classes = {}, {}
    for path in FILES:
        if path.stem != "__init__" and part_of(path) != "cli":
            modules.setdefault(path.stem, []).append(str(path))
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.setdefault(node.name, []).append(str(path))
    assert {name: places for name, places in (modules | classes).items() if len(places) > 1} == {}


def test_there_are_few_files_and_none_is_tiny():
    """Fewer, fuller files: a reader opens few of them."""
    counted = [path for path in FILES if path.name != "__main__.py"]  # which Python wants for `python -m c2d`
    lengths = {path: len(path.read_text().splitlines()) for path in counted if path.read_text().strip()}
    assert len(lengths) <= 145
    reasons = {"seeding.py", "errors.py"}  # each is used by everything and depends on nothing
    small = [path for path, length in lengths.items() if length < 40 and path.name not in {"__init__.py", *reasons}]
    assert small == []
