"""From what the user asked for to a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2d import __version__
from c2d.envs.games import GAMES
from c2d.errors import UserError, did_you_mean
from c2d.reporting import elsewhere
from c2d.reporting.conventions import NOMINAL, convention
from c2d.reporting.field import Field, gather
from c2d.reporting.matching import match_atari
from c2d.reporting.own import OwnRun, read_own
from c2d.reporting.page import Section
from c2d.reporting.passports import differences, published_passport
from c2d.reporting.references import TABLES, reference
from c2d.reporting.report import Report
from c2d.reporting.sections import PAPER_GAMES, Sections, Wishes
from c2d.reporting.study import Choice

_LENGTHS = (
    " Published runs of C2D have 200 iterations of 1M frames, the others 199: at 200M the last one that all have "
    "counts, or with convention `figures` the last of each."
)


@dataclass(frozen=True)
class Request:
    """The options of `c2d report`."""

    runs: tuple[Path, ...] = ()
    published: Path | None = None
    agents: tuple[str, ...] = ()
    games: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    at: float | None = None
    convention: str = "table"
    references: str | None = None
    replications: int = 10_000
    seed: int = 0
    command: str = ""


def assemble(request: Request) -> Report:
    chosen = choice(request.convention, request.references, request.replications, request.seed)
    wanted = tuple(map(known_game, request.games))
    own, notes = read_own(request.runs) if request.runs else ([], [])
    field = gather(own, notes, request.published, request.agents)
    numbers: dict[str, Any] = {"settings": _settings(chosen)}
    facts = [f"Made by `{request.command}` (c2d {__version__})."]
    told = list(field.notes)
    sections: list[Section] = []
    matched = match_atari(field, chosen, request.at, told)
    if matched is not None:
        told += unlike(own, field)
        study = matched.study
        close = wanted or (study.games[:4] if own else PAPER_GAMES)
        wishes = Wishes(close, _rivals(request.against, field), unlike_agents(own, field))
        builder = Sections(study, wishes)
        sections += builder.build()
        numbers |= {"frames_millions": study.frames, "games": study.games, **builder.numbers}
        facts.append(_fact(chosen, len(study.games), study.frames))
    sections += elsewhere.sections(field, chosen, numbers, told)
    return Report(_title(field), tuple(facts), tuple(dict.fromkeys(told)), tuple(sections), numbers)


def choice(name: str, references: str | None, replications: int, seed: int) -> Choice:
    how = convention(name)
    table = references or how.references
    reference("pong", table)  # refuses an unknown table
    return Choice(how, table, replications, seed)


def known_game(name: str) -> str:
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    if plain not in GAMES:
        raise UserError(f'unknown game "{name}".{did_you_mean(plain, GAMES)} {len(GAMES)} Atari games are known')
    return plain


def unlike(own: Sequence[OwnRun], field: Field) -> list[str]:
    """Notes on rules under which own scores and published ones arose, where they differ in something that matters."""
    found: dict[str, list[str]] = {}
    for agent in field.published:
        theirs = published_passport(agent)
        for one in own:
            if one.run.key.game in GAMES and (gaps := differences(one.passport, theirs)):
                words = f"{one.run.key.agent} was not scored under the rules of {{}}: {'; '.join(gaps)}"
                if agent not in found.setdefault(words, []):
                    found[words].append(agent)
    return [words.replace("{}", ", ".join(agents), 1) + " (own | published)" for words, agents in found.items()]


def unlike_agents(own: Sequence[OwnRun], field: Field) -> tuple[str, ...]:
    """Published agents whose scores arose under rules that differ from those of an own run."""
    passports = [one.passport for one in own if one.run.key.game in GAMES]
    return tuple(
        agent
        for agent in field.published
        if any(differences(passport, published_passport(agent)) for passport in passports)
    )


def _rivals(names: tuple[str, ...], field: Field) -> tuple[str, ...]:
    for name in names:
        if name not in field.agents:
            raise UserError(
                f'--against "{name}" is not shown.{did_you_mean(name, field.agents)} Shown: {", ".join(field.agents)}'
            )
    return names


def _settings(chosen: Choice) -> dict[str, Any]:
    return {
        "convention": chosen.convention.name,
        "references": chosen.references,
        "replications": chosen.replications,
        "seed": chosen.seed,
    }


def _fact(chosen: Choice, games: int, frames: float) -> str:
    return (
        f"Compared on {games} game{'s' * (games != 1)} at {frames:g}M frames. Scores: convention "
        f"`{chosen.convention.name}`, {chosen.convention.words}; normalized by the reference scores "
        f"`{chosen.references}` (0 is random play, 1 a human tester; `--references` chooses among "
        f"{', '.join(TABLES)}).{_LENGTHS if frames >= NOMINAL else ''}"
    )


def _title(field: Field) -> str:
    if not field.own:
        return "Published agents on Atari"
    return f"{', '.join(field.own[:3])}{' and others' if len(field.own) > 3 else ''}"
