"""The ledger: every number, table, figure and claim of the C2D paper with our value and a verdict."""

from __future__ import annotations

from c2d.reporting.ledger import claims, paper_numbers
from c2d.reporting.ledger.entry import LedgerEntry
from c2d.reporting.scores import Dataset


def entries(dataset: Dataset, replications: int) -> list[LedgerEntry]:
    return [
        *paper_numbers.tables_and_figures(dataset, replications),
        *claims.result_claims(dataset, replications),
        *claims.other_claims(dataset),
        *claims.propositions(),
        *claims.untested_claims(),
        *paper_numbers.settings(),
    ]
