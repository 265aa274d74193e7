"""Builds a report from the user's options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2d import __version__
from c2d.envs.games import GAMES
from c2d.errors import UserError, did_you_mean
from c2d.formatting import alphanumeric, plural
from c2d.reporting.alignment import align_atari
from c2d.reporting.analysis import ScoringOptions
from c2d.reporting.dataset import Dataset, gather
from c2d.reporting.local_runs import (
    LocalRun,
    passport_differences,
    published_passport,
    read_local_runs,
    recorded_metrics,
)
from c2d.reporting.page import Report, Section
from c2d.reporting.scores import NOMINAL, REFERENCE_TABLES, convention, reference
from c2d.reporting.sections import PAPER_GAMES, SectionBuilder, SectionOptions, other_sections
from c2d.reporting.tables import Table

_LENGTHS = (
    " Published C2D runs have 200 iterations of 1M frames, the others 199: the score at 200M is taken at the last "
    "iteration that all runs have, or with convention `figures` at the last of each run."
)


@dataclass(frozen=True)
class ReportRequest:
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


def build_report(request: ReportRequest) -> Report:
    chosen = scoring_options(request.convention, request.references, request.replications, request.seed)
    wanted = tuple(map(known_game, request.games))
    own, run_notes = read_local_runs(request.runs) if request.runs else ([], [])
    dataset = gather(own, run_notes, request.published, request.agents)
    numbers: dict[str, Any] = {"settings": _settings(chosen)}
    facts = [f"Made by `{request.command}` (c2d {__version__})."]
    notes = list(dataset.notes)
    sections: list[Section] = []
    aligned = align_atari(dataset, chosen, request.at, notes)
    if aligned is not None:
        notes += rule_notes(own, dataset)
        analysis = aligned.analysis
        close = wanted or (analysis.games[:4] if own else PAPER_GAMES)
        options = SectionOptions(close, _rivals(request.against, dataset), agents_with_other_rules(own, dataset))
        builder = SectionBuilder(analysis, options)
        sections += builder.build()
        numbers |= {"frames_millions": analysis.frames, "games": analysis.games, **builder.numbers}
        facts.append(_fact(chosen, len(analysis.games), analysis.frames))
    sections += other_sections(dataset, chosen, numbers, notes)
    if own:
        sections.append(_recorded(own))
    return Report(_title(dataset), tuple(facts), tuple(dict.fromkeys(notes)), tuple(sections), numbers)


def _recorded(own: Sequence[LocalRun]) -> Section:
    """What the runs recorded besides scores."""
    rows = recorded_metrics(own)
    table = Table(
        "recorded",
        "Recorded per iteration: means over an agent's runs, in their first and last iterations.",
        ("agent", "metric", "first iteration", "last iteration"),
        tuple((row.agent, row.metric, format(row.first, row.format), format(row.last, row.format)) for row in rows),
        ("agent", "metric", "first", "last"),
        tuple((row.agent, row.metric, row.first, row.last) for row in rows),
    )
    return Section("recorded", "Recorded per iteration", "", tables=(table,))


def scoring_options(name: str, references: str | None, replications: int, seed: int) -> ScoringOptions:
    chosen = convention(name)
    table = references or chosen.references
    reference("pong", table)  # rejects an unknown table
    return ScoringOptions(chosen, table, replications, seed)


def known_game(name: str) -> str:
    key = alphanumeric(name)
    if key not in GAMES:
        raise UserError(f'unknown game "{name}"; accepted: one of {len(GAMES)} Atari games.{did_you_mean(key, GAMES)}')
    return key


def rule_notes(own: Sequence[LocalRun], dataset: Dataset) -> list[str]:
    """Notes on rules that affect scores and differ between your runs and published agents."""
    found: dict[str, list[str]] = {}
    for agent in dataset.published:
        theirs = published_passport(agent)
        for one in own:
            if one.run.key.game in GAMES and (gaps := passport_differences(one.passport, theirs)):
                text = f"{one.run.key.agent} was scored under other rules than {{}}: {'; '.join(gaps)}"
                if agent not in found.setdefault(text, []):
                    found[text].append(agent)
    return [text.replace("{}", ", ".join(agents), 1) + " (own | published)" for text, agents in found.items()]


def agents_with_other_rules(own: Sequence[LocalRun], dataset: Dataset) -> tuple[str, ...]:
    """Published agents that were scored under other rules than one of your runs."""
    passports = [one.passport for one in own if one.run.key.game in GAMES]
    return tuple(
        agent
        for agent in dataset.published
        if any(passport_differences(passport, published_passport(agent)) for passport in passports)
    )


def _rivals(names: tuple[str, ...], dataset: Dataset) -> tuple[str, ...]:
    for name in names:
        if name not in dataset.agents:
            raise UserError(
                f'--against "{name}" is not shown; accepted: {", ".join(dataset.agents)}.'
                f"{did_you_mean(name, dataset.agents)}"
            )
    return names


def _settings(chosen: ScoringOptions) -> dict[str, Any]:
    return {
        "convention": chosen.convention.name,
        "references": chosen.references,
        "replications": chosen.replications,
        "seed": chosen.seed,
    }


def _fact(chosen: ScoringOptions, games: int, frames: float) -> str:
    return (
        f"Compared on {plural(games, 'game')} at {frames:g}M frames. Scores: convention "
        f"`{chosen.convention.name}`, {chosen.convention.words}; normalized by the reference scores "
        f"`{chosen.references}` (0: random play, 1: human tester; `--references` accepts "
        f"{', '.join(REFERENCE_TABLES)}).{_LENGTHS if frames >= NOMINAL else ''}"
    )


def _title(dataset: Dataset) -> str:
    if not dataset.own:
        return "Published agents on Atari"
    return f"{', '.join(dataset.own[:3])}{' and others' if len(dataset.own) > 3 else ''}"
