"""Why a request is not answered: a status code, and cause, check and cure as JSON."""

from __future__ import annotations

import json

from gpnn.common.errors import FileError, InvalidInputError

LOOK = "GET /model lists the columns, their kinds, levels and ranges; /docs shows a request."


class RefusalError(Exception):
    """Ends a request with this status; the client reads cause, check and cure."""

    def __init__(self, status: int, cause: str, cure: str, check: str = LOOK, headers: dict[str, str] | None = None):
        super().__init__(cause)
        self.status, self.cause, self.check, self.cure, self.headers = status, cause, check, cure, headers or {}

    def body(self) -> bytes:
        error = {"cause": self.cause, "check": self.check, "cure": self.cure}
        return json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "replace")


def refusal_of(error: Exception) -> RefusalError:
    """What one of the library's own errors means for whoever sent the rows: its last sentence is the cure."""
    text = " ".join(str(error).split())
    cause, _, cure = text.rpartition(". ")
    status = 400 if isinstance(error, FileError) else 422
    return RefusalError(
        status, f"{cause}." if cause else text, cure if cause else "Correct the rows and send them again."
    )


OURS = (InvalidInputError, FileError)
"""What the library raises about rows that it cannot use."""


def busy(cause: str, seconds: int = 1) -> RefusalError:
    return RefusalError(
        429,
        cause,
        f"Try again in {seconds} s, or start the server with more --workers or larger limits.",
        "GET /metrics counts what waits and what was turned away.",
        {"Retry-After": str(seconds)},
    )
