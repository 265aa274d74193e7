"""What spaces become, against Gymnasium's own way to flatten them, and masks as environments give them."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten

from c2d.envs.gymnasium import BadEnvironment
from c2d.envs.make import make
from c2d.envs.protocols import GymRules
from c2d.envs.spaces import MOST_ACTIONS, read_actions, read_mask, read_observations
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.runs.layout import RunDir
from c2d.user_code import trust

HERE = "tests.envs.user_envs"


def own(name, **rules):
    return make(f"{HERE}:{name}", GymRules(**rules), 0)


# ------------------------------------------------------------------------------ observations

VECTORS = [
    spaces.Dict({"b": spaces.Box(-1, 1, (2,)), "a": spaces.Discrete(3, start=4), "c": spaces.MultiBinary(2)}),
    spaces.Tuple([spaces.Box(-5, 5, ()), spaces.MultiDiscrete([2, 3]), spaces.Dict({"x": spaces.Discrete(2)})]),
    spaces.Dict({"deep": spaces.Dict({"goal": spaces.Box(0, 9, (3,), np.int64)}), "left": spaces.Box(0, 1, (1,))}),
    spaces.Dict({"only": spaces.Box(-1, 1, (4,))}),
    spaces.MultiBinary((2, 3)),
    spaces.MultiDiscrete([[2, 3], [4, 2]]),
    spaces.Box(-1, 1, ()),
    spaces.Discrete(4, start=-2),
]


@pytest.mark.parametrize("space", VECTORS, ids=str)
def test_vectors_are_joined_as_gymnasium_does(space):
    reading = read_observations(space, "x")
    space.seed(1)
    for _ in range(5):
        observation = space.sample()
        frame = reading.convert(observation)
        assert frame.shape == reading.shape and frame.dtype == np.float32
        np.testing.assert_allclose(frame, flatten(space, observation).astype(np.float32))
        if reading.limits is not None:
            low, high = reading.limits
            assert ((reading.limited(observation) >= low) & (reading.limited(observation) <= high)).all()


def test_the_parts_are_named_in_passport_and_limits_hold_for_them():
    game = own("Parts")
    game.reset()
    assert game.passport()["observations"] == "6 numbers: goal (4), here.place (2)"
    assert game.outside is None
    frame = game.step(0).frame
    assert frame.tolist() == [0, 1, 0, 0, 1.0, 5.0]
    assert "leaves its declared Box: 5 at [5], where it is 0 to 3" in game.outside
    assert "observations" not in make("CartPole-v1", None, 0).passport()


def test_an_image_alone_in_a_dictionary_is_an_image():
    image = spaces.Box(0, 255, (12, 10, 3), np.uint8)
    reading = read_observations(spaces.Dict({"screen": image}), "x")
    assert reading.shape == (3, 12, 10) and reading.dtype == np.uint8 and reading.layout is None
    screen = image.sample()
    np.testing.assert_array_equal(reading.convert({"screen": screen}), np.moveaxis(screen, -1, 0))


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Dict({"a": spaces.Discrete(2), "in": spaces.Dict({"screen": spaces.Box(0, 255, (8, 8), np.uint8)})}),
         ['Dict with the image "in.screen" of shape (8, 8) among other parts', "gymnasium.wrappers:FlattenObservation",
          "docs/environments.md#observations"]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Text(4)]), ['Tuple with the part "1", a Text']),
        (spaces.Dict({}), ["Dict with no part"]),
        (spaces.Text(4), ["space Text", "accepted: a Box"]),
        (spaces.Sequence(spaces.Discrete(2)), ["space Sequence"]),
        (spaces.Box(0, 1, (2, 3, 4, 5)), ["Box of shape (2, 3, 4, 5)", "FlattenObservation"]),
    ],
)  # fmt: skip
def test_what_cannot_be_learned_is_named_and_a_wrapper_too(space, words):
    with pytest.raises(UserError) as caught:
        read_observations(space, "mine")
    assert all(word in str(caught.value) for word in ["mine has the observation", "accepted", *words])


@pytest.mark.parametrize(("name", "words"), [
    ("MissingPart", "dict without 'goal'"), ("LongPart", r"it has shape \(3,\), not \(2,\)"),
    ("NoParts", "ndarray without 'here'|ndarray without 'goal'"),
])  # fmt: skip
def test_a_dictionary_that_is_not_as_declared(name, words):
    with pytest.raises(BadEnvironment, match=rf"{name}, episode 1, step 0: the observation is outside its.*({words})"):
        own(name).reset()


# ------------------------------------------------------------------------------ actions


@pytest.mark.parametrize("space", [
    spaces.Discrete(3), spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([1, 2, 2]),
    spaces.MultiDiscrete([2, 2], start=[-1, 4]), spaces.MultiBinary(3),
], ids=str)  # fmt: skip
def test_every_action_is_reached_once_in_its_own_form(space):
    actions = read_actions(space, "x")
    spec = EnvSpec("x", "gym", (1,), "float32", 1, actions.number, 1, actions.names, False, *actions[2:])
    each = [spec.own_action(action) for action in range(actions.number)]
    assert all(space.contains(action) for action in each) and len(set(actions.names)) == actions.number
    assert len({str(action) for action in each}) == actions.number
    assert np.array_equal(spec.own_action(np.arange(actions.number)), each)
    space.seed(0)
    assert {str(space.sample().tolist()) for _ in range(200)} == {str(np.asarray(a).tolist()) for a in each}


def test_names_and_forms_of_actions():
    assert read_actions(spaces.MultiDiscrete([2, 2], start=[0, 3]), "x").names == ("0,3", "0,4", "1,3", "1,4")
    assert read_actions(spaces.MultiBinary(2), "x").names == ("00", "01", "10", "11")
    game = own("TwoActions")
    game.reset()
    for action in (0, 4):
        game.step(action)
    assert [action.tolist() for action in game._env.actions] == [[0, 0], [1, 1]]
    assert game._env.actions[0].dtype == game._env.action_space.dtype
    assert game.spec.actions == 6 and game.passport()["actions"][4] == "1,1"


@pytest.mark.parametrize(("space", "words"), [
    (spaces.MultiBinary(11), f"with 2,048 combinations; accepted: at most {MOST_ACTIONS:,}"),
    (spaces.Box(0, 1, (2,)), r"Box.*; accepted: Discrete, and MultiDiscrete or MultiBinary.*docs/environments.md"),
    (spaces.MultiDiscrete([[2, 2]]), "accepted: Discrete, and MultiDiscrete or MultiBinary with 1 dimension"),
    (spaces.Tuple([spaces.Discrete(2)]), "Tuple.*accepted: Discrete"),
])  # fmt: skip
def test_actions_that_cannot_be_numbered(space, words):
    with pytest.raises(UserError, match=words):
        read_actions(space, "x")


def test_a_run_keeps_the_form_of_its_actions(tmp_path):
    actions = read_actions(spaces.MultiDiscrete([2, 2], start=[0, 3]), "x")
    spec = EnvSpec("x", "gym", (1,), "float32", 1, 4, 1, actions.names, True, actions.parts, actions.start)
    plain = EnvSpec("x", "gym", (1,), "float32", 1, 4, 1, actions.names)
    run = RunDir(tmp_path)
    for each in (spec, plain):
        run.describe({}, each, {})
        assert run.read_spec() == each
    assert "masked" not in run.env.read_text()
    for damage in ({"action_parts": [2, 3]}, {"action_start": [1, 1]}, {"masked": 1}, {"action_parts": ["2", 2]}):
        run.env.write_text(__import__("json").dumps({**vars_of(plain), **damage}))
        with pytest.raises(UserError, match="cannot be read"):
            run.read_spec()


def vars_of(spec):
    return {name: getattr(spec, name) for name in ("name", "family", "frame_shape", "frame_dtype", "stack", "actions",
                                                   "frames_per_step", "action_names")}  # fmt: skip


# ------------------------------------------------------------------------------ masks


def masks_of(name, steps=3, **rules):
    game = own(name, **rules)
    found = [game.reset().legal]
    for _ in range(steps):
        step = game.step(0)
        found.append(step.legal)
        if step.reset is not None:
            found.append(step.reset.legal)
    return [None if mask is None else mask.tolist() for mask in found]


ALL = [[True, True, False, False], [False, False, True, True], [True, False, False, False]]


def test_masks_in_info_and_by_a_method():
    assert masks_of("Masked", 5) == [*ALL, ALL[0], None, ALL[0], ALL[1]]  # the fourth step ends the episode
    assert masks_of("MaskedByMethod", 2) == [[True, True, False]] * 2 + [[False, True, False]]
    flags = [False, True, True, False, False, False]  # of the pairs (0, 0), (0, 1), ...
    assert masks_of("MaskedInParts", 1) == [flags, flags]
    assert masks_of("Masked", 2, action_masks="ignore") == masks_of("Scripted", 2) == [None] * 3
    assert own("Masked").spec.masked and own("MaskedByMethod").spec.masked and not own("Scripted").spec.masked
    assert own("Masked").passport()["action_masks"] == "used"
    assert own("Scripted").passport().keys() == own("Masked", action_masks="ignore").passport().keys()


def test_a_mask_below_wrappers_and_of_a_registered_environment():
    trust("gymnasium.wrappers:NormalizeReward")
    wrapped = own("MaskedByMethod", wrappers=("gymnasium.wrappers:NormalizeReward",))
    assert wrapped.reset().legal.tolist() == [True, True, False]
    taxi = make(next(name for name in gymnasium.registry if name.startswith("Taxi-")), None, 0)
    legal = taxi.reset().legal
    assert legal.shape == (6,) and 0 < legal.sum() < 6


def test_the_end_of_an_episode_needs_no_mask():
    assert masks_of("EndingWithoutMask", 4) == [*ALL, ALL[0], None, ALL[0]]
    assert masks_of("TruncatingWithoutMask", 3, truncation="terminal")[3:] == [None, ALL[0]]
    with pytest.raises(BadEnvironment, match="episode 1, step 3: info has no action mask, which that of the first"):
        masks_of("TruncatingWithoutMask")
    assert masks_of("Masked", 2, cap_steps=2)[2:] == [ALL[2], ALL[0]]  # bootstrapped from


@pytest.mark.parametrize(("name", "words"), [
    ("Forbidding", "step 1: the action mask forbids every action; accepted: at least one legal action"),
    ("LosingItsMask", r'step 2: info has no action mask, .* accepted: info\["action_mask"\] from every reset and step'),
    ("LateMask", "step 2: info has an action mask, which .* had not; accepted: .* or --rules.action-masks ignore"),
    ("ShortMask", r"step 1: the action mask has shape \(3,\); accepted: 4 flags, True or 1 for each legal action"),
    ("FloatMask", "step 1: the action mask is of type float64; accepted: 4 flags"),
    ("LargeMask", "step 1: the action mask is of type int64 with values other than 0 and 1; accepted: 4 flags"),
])  # fmt: skip
def test_masks_that_are_none(name, words):
    with pytest.raises(BadEnvironment, match=rf"^gym/{HERE}:{name}, episode 1, {words}"):
        masks_of(name)


def test_masks_of_actions_with_parts_have_their_shape():
    actions = read_actions(spaces.MultiDiscrete([2, 3]), "x")
    flat = [True, False, False, True, True, False]
    assert read_mask(np.reshape(flat, (2, 3)), actions).tolist() == read_mask(flat, actions).tolist() == flat
    for wrong in ([1] * 5, np.ones((3, 2)), ([1, 1], [1, 1]), [[1], [1, 1]], None, "all"):
        with pytest.raises(ValueError, match=r"accepted: \d flags"):
            read_mask(wrong, actions)


def test_an_environment_is_reset_as_often_as_without_masks():
    """The first reset, which shows whether there are masks, is not made twice."""
    seen = []
    for masks in ("use", "ignore"):
        game = own("Scripted", action_masks=masks)
        game.reset()
        for _ in range(9):
            game.step(0)
        seen.append(game._env.seeds)
    assert seen[0] == seen[1] and len(set(seen[0])) == 3


def test_an_environment_whose_first_reset_fails_fails_when_it_is_reset():
    class Failing(gymnasium.Env):
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            raise RuntimeError("no license")

    game = make(Failing, None, 0)
    with pytest.raises(RuntimeError, match="no license"):
        game.reset()
