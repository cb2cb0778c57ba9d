"""Can this fit be trusted? Everything that the charts and the report show, measured once on rows kept for testing."""

from gpnn.judging.diagnostics.findings import findings, verdict
from gpnn.judging.diagnostics.measure import diagnose, diagnose_parts
from gpnn.judging.diagnostics.reasons import reasons
from gpnn.judging.diagnostics.values import (
    Cloud,
    Column,
    Diagnostics,
    Finding,
    FitRecord,
    Map,
    Reason,
    Support,
    SupportPart,
    Verdict,
)

__all__ = [
    "Cloud",
    "Column",
    "Diagnostics",
    "Finding",
    "FitRecord",
    "Map",
    "Reason",
    "Support",
    "SupportPart",
    "Verdict",
    "diagnose",
    "diagnose_parts",
    "findings",
    "reasons",
    "verdict",
]
