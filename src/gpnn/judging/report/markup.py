"""HTML and SVG elements whose text cannot break out: what is not markup already is escaped where it enters."""

from __future__ import annotations

from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | float) -> Markup:
    """<name attributes>content</name>. Content that is no Markup is escaped; class_ is class, and a_b is a-b."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{joined(*content)}</{name}>")


def joined(*content: str) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else escape(_printable(part)) for part in content))


def _short(value: str | float) -> str:
    """Coordinates to a tenth of a pixel."""
    return _printable(value) if isinstance(value, str) else f"{round(value, 1):g}"


def _printable(text: str) -> str:
    """Without control characters, which HTML has no way to write."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
