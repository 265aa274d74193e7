"""A part is one declaration: a name on the command line, settings with limits and help, and how it is built.

    @dataclass(frozen=True)
    class Categorical(HeadSpec, name="categorical"):
        "Help text."

        atoms: Annotated[int, UNITS] = 51
        "Help text of the setting."

        def build(self, features, actions, style): ...  # imports PyTorch here, so that reading a config does not

Options, JSON, validation and `c2d recipes --parts` are derived from it. A user's part has no `name`: it is called
`my_module:MyHead`. docs/extending.md has examples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from c2d.errors import UserError, unknown_name
from c2d.user_code import imported, is_user_code, require_trusted
from c2d.validation import COUNT_OR_0, FRACTION, NOT_NEGATIVE, POSITIVE, UNITS, between, require

if TYPE_CHECKING:
    from torch import nn

    from c2d.agents.learner import Optimizer
    from c2d.envs.spec import EnvSpec
    from c2d.nets.cores import RecurrentCell
    from c2d.nets.heads import Head, Style
    from c2d.nets.network import Encoder
    from c2d.recipes.recipe import Recipe
    from c2d.replay.buffer import Sampler
    from c2d.returns.bellman import Bootstrap
    from c2d.returns.losses import Loss
    from c2d.types import Phi

PARTS: dict[str, dict[str, type[Part]]] = {}  # slot of a recipe -> name on the command line -> declaration
SLOTS: dict[str, str] = {}  # slot -> what it decides, for the help texts

# What a head may give and a loss may need. A user's parts may use words of their own.
PREDICTIONS = {
    "point": "a single number per action",
    "grid": "probabilities on one fixed grid of atoms",
    "fractions": "atoms at known quantile fractions",
}


@dataclass(frozen=True)
class Part:
    """Base of all declarations."""

    _slot: ClassVar[str] = ""
    _name: ClassVar[str] = ""

    def __init_subclass__(cls, name: str = "", slot: str = "", about: str = "") -> None:
        super().__init_subclass__()
        if slot:
            cls._slot = slot
            PARTS[slot], SLOTS[slot] = {}, about
            return
        own = cls.__module__.partition(".")[0] == "c2d"
        if own != bool(name):
            raise TypeError(f"{cls.__qualname__}: a part of the package c2d has a name, any other one has none")
        cls._name = name or f"{cls.__module__}:{cls.__qualname__}"
        PARTS[cls._slot][cls._name] = cls

    def check(self, recipe: Recipe) -> None:
        """Raise a `UserError` if the part does not fit the rest of the recipe."""


AnyPart = TypeVar("AnyPart", bound=Part)


@dataclass(frozen=True)
class EncoderSpec(Part, slot="encoder", about="network from the observation to features"):
    """Declares an encoder."""

    @property
    def observations(self) -> str:
        """What it accepts: "image" [C, H, W], "vector" [D], or "any"."""
        return "any"

    def build(self, env: EnvSpec) -> Encoder:
        raise NotImplementedError(f"{type(self).__name__} has no build(self, env)")


@dataclass(frozen=True)
class CoreSpec(Part, slot="core", about="memory between encoder and head"):
    """Declares a core. One with memory is `Recurrent` too: `class Mine(Recurrent, CoreSpec)`."""


@dataclass(frozen=True)
class Recurrent:
    """What a core with memory declares: its size, and the sequences that it learns from."""

    hidden: Annotated[int, UNITS] = 512
    """Units of the core."""
    feed: Literal["action-reward", "nothing"] = "action-reward"
    """What it sees in addition to the observation: the previous action (one-hot) and the previous reward (clipped if
    the recipe clips, then through φ); or nothing."""
    sequence: Annotated[int, between(1, 10_000)] = 80
    """Steps that are learned from in each sequence; fewer where an episode ends. The batch size counts sequences."""
    burn_in: Annotated[int, between(0, 10_000)] = 40
    """Steps before them that only prepare the memory, as far as the episode has so many: no gradient, no loss."""
    overlap: Annotated[int, COUNT_OR_0] = 40
    """Steps that a sequence shares with the next one of its episode: one begins every sequence - overlap steps."""
    state: Literal["stored", "zero"] = "stored"
    """Memory at the start of the burn-in: as it was when the step was played, or zeros."""
    priority_max: Annotated[float, FRACTION] = 0.9
    """η of a sequence's priority: η·max + (1 - η)·mean of those of its steps."""

    @property
    def stride(self) -> int:
        """Steps from the start of one sequence to the start of the next."""
        return self.sequence - self.overlap

    def keeps_memory_at(self, position: int) -> bool:
        """Whether the burn-in of a sequence may begin at this step of an episode, so that the memory before is kept."""
        return self.state == "stored" and position > 0 and (position + self.burn_in) % self.stride == 0

    def check(self, recipe: Recipe) -> None:
        accepted = f"below the length of a sequence, --core.sequence {self.sequence}"
        require(self.overlap < self.sequence, "core.overlap", self.overlap, accepted)

    def at_scale(self: AnyCore, units: int) -> AnyCore:
        """Of as many units as a dense layer has there. Below 512, those of small environments, sequences are shorter,
        as long as they are those of R2D2."""
        core = replace(self, hidden=units)
        if units >= 512 or (self.sequence, self.burn_in, self.overlap) != (80, 40, 40):
            return core
        return replace(core, sequence=40, burn_in=20, overlap=20)

    def build(self, inputs: int) -> RecurrentCell:
        """A cell for so many inputs."""
        raise NotImplementedError(f"{type(self).__name__} has no build(self, inputs)")


AnyCore = TypeVar("AnyCore", bound=Recurrent)


@dataclass(frozen=True)
class HeadSpec(Part, slot="head", about="what is predicted for each action"):
    """Declares a head."""

    @property
    def gives(self) -> tuple[str, ...]:
        """What a loss can rely on in its predictions; see `PREDICTIONS`."""
        return ()

    @property
    def rows(self) -> int:
        """Rows of its hidden layer per observation, for the estimate of memory."""
        return 1

    def build(self, features: int, actions: int, style: Style) -> Head:
        raise NotImplementedError(f"{type(self).__name__} has no build(self, features, actions, style)")


@dataclass(frozen=True)
class LossSpec(Part, slot="loss", about="how prediction and target are compared"):
    """Declares a loss."""

    @property
    def needs(self) -> tuple[str, ...]:
        """What it relies on in the predictions of the head; see `PREDICTIONS`."""
        return ()

    def check(self, recipe: Recipe) -> None:
        for need in self.needs:
            if need not in recipe.head.gives:
                names = f"--loss {part_name(self)} does not fit --head {part_name(recipe.head)}"
                raise UserError(f"{names}: it needs {PREDICTIONS.get(need, need)}")

    def build(self, phi: Phi) -> Loss:
        """`phi` is the recipe's, for losses that compare real returns: both laws have their atoms in φ-space."""
        raise NotImplementedError(f"{type(self).__name__} has no build(self, phi)")


@dataclass(frozen=True)
class BootstrapSpec(Part, slot="bootstrap", about="which return distribution the target takes from the next state"):
    """Declares a bootstrap."""

    def build(self) -> Bootstrap:
        raise NotImplementedError(f"{type(self).__name__} has no build(self)")


@dataclass(frozen=True)
class SamplerSpec(Part, slot="sampler", about="which transitions an update learns from"):
    """Declares a sampler."""

    def build(self, capacity: int, streams: int = 1) -> Sampler:
        """For `capacity` slots altogether, in as many rings of equal length as there are streams."""
        raise NotImplementedError(f"{type(self).__name__} has no build(self, capacity, streams)")

    def build_priority(self) -> Loss | None:
        """By what it wants to draw, if that is not the loss that is descended: computed without gradient."""
        return None


@dataclass(frozen=True)
class OptimizerSpec(Part, slot="optim", about="how weights follow gradients"):
    """Declares an optimizer."""

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        raise NotImplementedError(f"{type(self).__name__} has no build(self, parameters)")

    def build_for(self, encoder: list[nn.Parameter], head: list[nn.Parameter]) -> Optimizer:
        """For those that tell the two apart; by default they are trained alike."""
        return self.build([*encoder, *head])


# ------------------------------------------------------------------------------------------------------------------ φ


@dataclass(frozen=True)
class PhiSpec:
    """The homeomorphism φ that squeezes returns."""

    kind: str = "scaled_h"
    """Which function: identity, h, scaled_h, symlog, asinh, or your own as my_package.my_module:my_phi."""
    beta: Annotated[float, POSITIVE] = 1.99
    """β: scale of scaled_h, φ(x) = β·h(x)."""
    eps: Annotated[float, NOT_NEGATIVE] = 1e-3
    """ϵ of h(x) = sign(x)(√(1+|x|) − 1) + ϵx."""

    def build(self) -> Phi:
        """The pair of functions. A user's own is checked to be increasing and to have this inverse."""
        from c2d.returns.phi import KINDS, check_homeomorphism
        from c2d.types import Phi

        if self.kind in KINDS:
            return KINDS[self.kind](self.beta, self.eps)
        if not is_user_code(self.kind):
            raise unknown_name("φ", self.kind, KINDS, f"{', '.join(KINDS)}, or your own as my_module:my_phi")
        require_trusted(self.kind, "φ")
        phi = imported(self.kind)
        if not isinstance(phi, Phi) or not (callable(phi.to) and callable(phi.back)):
            raise UserError(f'φ "{self.kind}" is not a c2d.types.Phi: a pair of functions `to` and `back` on tensors')
        check_homeomorphism(phi, self.kind)
        return phi


# ----------------------------------------------------------------------------------------------------- by their names


def part_name(part: Part | type[Part]) -> str:
    """The name of a part on the command line."""
    return part._name


def json_name(cls: type) -> str:
    """The "class" of an object in a config file: the class, with its module if it is the user's own."""
    return cls._name if issubclass(cls, Part) and is_user_code(cls._name) else cls.__name__


def find_part(slot: str, name: str) -> type[Part]:
    """The part called `name` on the command line. A user's own must be trusted, unless it is imported already."""
    known = PARTS[slot]
    if is_user_code(name) and name not in known:
        require_trusted(name, slot)
        part, base = imported(name, slot), _base(slot)
        if not (isinstance(part, type) and issubclass(part, base) and part_name(part)):
            raise UserError(f'{slot} "{name}" is not a subclass of c2d.recipes.part.{base.__name__}')
        return check_declaration(part)
    if name not in known:
        raise unknown_name(slot, name, known, f"{', '.join(known)}, or your own as my_module:MyClass")
    return check_declaration(known[name])


def find_json_class(name: str) -> type[Part] | None:
    """The part that a config file calls `name`, if there is one. A user's own must be trusted, as above."""
    if is_user_code(name) and not any(name in parts for parts in PARTS.values()):
        require_trusted(name, "a part of this config")
        imported(name, "part")
    return next((cls for parts in PARTS.values() for cls in parts.values() if json_name(cls) == name), None)


def check_declaration(cls: type[AnyPart]) -> type[AnyPart]:
    """The same class; rejects one whose settings would be ignored or have no defaults."""
    if vars(cls).get("__annotations__") and "__dataclass_fields__" not in vars(cls):
        raise UserError(f"{part_name(cls)} is not a dataclass; put @dataclass(frozen=True) above the class")
    for field in fields(cls):
        if field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f'{part_name(cls)} has a setting without a default, "{field.name}"; give it one')
    return cls


def _base(slot: str) -> type[Part]:
    return next(cls for cls in Part.__subclasses__() if cls._slot == slot)


def with_known(part: AnyPart, **values: Any) -> AnyPart:
    """The part with these settings, as far as it has them."""
    names = {field.name for field in fields(part)}
    return replace(part, **{name: value for name, value in values.items() if name in names})
