"""What networks take is counted before they are built: never too little, and exactly when it matters."""

from dataclasses import replace

import pytest
import torch

from c2d.agents import build as sizes
from c2d.agents.build import build_network
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.recipes import parts
from c2d.recipes.part import Recurrent
from c2d.recipes.rows import RECIPES, adapt

ATARI = EnvSpec("atari/x", "atari", (1, 84, 84), "uint8", 4, 18, 4)
MINATAR = EnvSpec("minatar/x", "minatar", (7, 10, 10), "uint8", 1, 6, 1)
VECTOR = EnvSpec("gym/x", "gym", (4,), "float32", 1, 2, 1)


def actual(recipe, env):
    network = build_network(recipe, env, torch.Generator())
    return sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))


@pytest.mark.parametrize("env", [ATARI, MINATAR, VECTOR], ids=lambda env: env.family)
def test_the_quick_count_is_never_too_small(env):
    for name, row in RECIPES.items():
        recipe = adapt(row, env)
        assert sizes.most_network_bytes(recipe, env) >= actual(recipe, env), name


@pytest.mark.parametrize(
    ("env", "encoder"),
    [
        (ATARI, parts.Nature(padding="same")),
        (ATARI, parts.Impala(scale=2)),
        (ATARI, parts.Impala(scale=2, norm="layer")),
        (ATARI, parts.Impala(scale=2, norm="spectral", pool=6)),
        (ATARI, parts.Impala(scale=3, norm="spectral", pool=11)),
        (MINATAR, parts.Impala(norm="spectral")),
        (ATARI, parts.Nature(norm="layer")),
        (MINATAR, parts.MinAtar(channels=64, norm="channel")),
        (VECTOR, parts.Mlp(widths=(32,) * 30)),
        (VECTOR, parts.Mlp(widths=(300, 5, 700))),
    ],
)
def test_both_counts_of_other_encoders(env, encoder):
    recipe = replace(adapt(RECIPES["rainbow-c2d-full"], env), encoder=encoder)
    assert sizes.network_bytes(recipe, env) == actual(recipe, env) <= sizes.most_network_bytes(recipe, env)


def test_both_counts_with_two_hidden_layers():
    for name in ("iqn", "c2d"):
        recipe = replace(RECIPES[name], dueling=True, dueling_hidden="separate")
        wide = replace(recipe, head=replace(recipe.head, hidden=3_000))
        for each in (recipe, wide):
            assert sizes.network_bytes(each, ATARI) == actual(each, ATARI) <= sizes.most_network_bytes(each, ATARI)
        plain = replace(wide, dueling_hidden="shared")
        assert sizes.update_bytes(wide, ATARI) > sizes.update_bytes(plain, ATARI)


def test_an_update_counts_the_maps_of_a_residual_encoder():
    """Between the maps that autograd keeps, counted here, and a few times as much."""
    recipe = replace(RECIPES["c2d"], encoder=parts.Impala(scale=2, norm="spectral", pool=6))
    batches = [replace(recipe, schedule=replace(recipe.schedule, batch_size=size)) for size in (2, 4)]
    counted = sizes.update_bytes(batches[1], ATARI) - sizes.update_bytes(batches[0], ATARI)
    kept = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        features = recipe.encoder.build(ATARI)(torch.zeros(2, 4, 84, 84, dtype=torch.uint8), "target")
    assert features.shape == (2, 2304)
    assert 0.9 * sum(kept.values()) < counted < 3 * sum(kept.values())


def test_a_network_is_rejected_by_its_exact_size(monkeypatch):
    recipe = replace(adapt(RECIPES["dqn"], VECTOR), encoder=parts.Mlp(widths=(30_000, 30_000)))
    needed = sizes.network_bytes(recipe, VECTOR)  # 3.6 GB, of which nothing is allocated here
    assert 3.6e9 < needed < 3.7e9
    monkeypatch.setattr(sizes, "available_memory", lambda: needed)
    sizes.check_network(recipe, VECTOR)
    with pytest.raises(UserError, match=r"its networks may take 18\.\d GB of memory, and 3\.6 GB are free; lower"):
        sizes.check_training(recipe, VECTOR, None)
    monkeypatch.setattr(sizes, "available_memory", lambda: needed - 1)
    with pytest.raises(UserError, match="its networks may take 3"):
        build_network(recipe, VECTOR, torch.Generator())


def test_what_cannot_even_be_counted_is_rejected():
    recipe = replace(adapt(RECIPES["dqn"], VECTOR), encoder=parts.Mlp(widths=(10**12, 10**12)))
    with pytest.raises(UserError, match="its networks may take"):
        sizes.check_network(recipe, VECTOR)


def test_free_memory_is_the_systems_or_the_containers(tmp_path):
    assert sizes.available_memory(tmp_path) == 1 << 62  # a system that does not say
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:  4000 kB\nHugePages_Total:  0\n")
    assert sizes.available_memory(tmp_path) == 4000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    for name, text in {"max": "2000", "current": "1500", "stat": "anon 400\ninactive_file 600\n"}.items():
        (group / f"memory.{name}").write_text(text)
    assert sizes.available_memory(tmp_path) == 2000 - (1500 - 600)  # cached files give way
    (group / "memory.max").write_text("max")
    assert sizes.available_memory(tmp_path) == 4000 * 1024


def test_small_networks_have_one_thread_and_large_ones_all_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(sizes, "available_cores", lambda: 8)
    torch.set_num_threads(3)
    for env, threads in ((ATARI, 3), (MINATAR, 1), (VECTOR, 1)):
        for name, row in RECIPES.items():
            if env is ATARI or not isinstance(row.core, Recurrent):
                assert sizes.default_threads(adapt(row, env), env) == threads, (env, name)
    wide = replace(adapt(RECIPES["c2d"], VECTOR), encoder=parts.Mlp(widths=(1_000, 1_000)))
    assert sizes.default_threads(wide, VECTOR) == 3
    monkeypatch.setattr(sizes, "available_cores", lambda: 2)
    assert sizes.default_threads(wide, VECTOR) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # the user has chosen
    assert sizes.default_threads(adapt(RECIPES["c2d"], VECTOR), VECTOR) == 2


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 4), ("", 4)]
)
def test_cores_are_those_the_process_may_use(limit, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(sizes.os, "sched_getaffinity", lambda _: {2, 3, 5, 7}, raising=False)
    assert sizes.available_cores(tmp_path) == 4
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(limit + "\n")
    assert sizes.available_cores(tmp_path) == cores
