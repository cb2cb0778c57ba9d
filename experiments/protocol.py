"""The settings of protocol.toml, and a fingerprint of those that a result was made with."""

import hashlib
import json
import tomllib
from pathlib import Path

PROTOCOL = tomllib.loads((Path(__file__).parent / "protocol.toml").read_text())


def section(kind: str, quick: bool = False) -> dict:
    """The settings of one kind of result; with quick, those of [quick.kind] in their place."""
    return PROTOCOL[kind] | (PROTOCOL["quick"].get(kind, {}) if quick else {})


def fingerprint(settings: dict) -> str:
    """Twelve digits that change with any setting, and with nothing else: not with comments or the order of lines."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
