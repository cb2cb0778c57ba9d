"""Generated blocks in a page of prose: what stands between two markers is replaced, all else is kept."""

import re
from collections.abc import Mapping
from pathlib import Path

from gpnn.errors import FileError
from gpnn.files.whole import whole_or_nothing

_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def rewrite(page: Path, blocks: Mapping[str, str]) -> None:
    """Put each block between its markers; a marker that names no block, or has no end, is an error."""
    text = page.read_text()
    opened, whole = re.findall(r"<!-- generated: (\w+) -->", text), [match[1] for match in _BLOCK.findall(text)]
    wrong = [name for name in opened if name not in whole or name not in blocks]
    if wrong:
        raise FileError(
            f"{page}: the block {wrong[0]!r} has no end marker, or there is no such table. It is written\n"
            f"<!-- generated: NAME -->\n…\n<!-- end of NAME -->\nwith one of these names: {', '.join(blocks)}."
        )
    new = _BLOCK.sub(lambda match: f"{match[1]}\n{blocks[match[2]]}\n\n{match[3]}", text)
    with whole_or_nothing(page) as unfinished:
        unfinished.write_text(new)
