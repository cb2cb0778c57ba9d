"""Every example of docs/command_line.md is run, in its order, and prints what the page shows, up to figures."""

import re
import shlex
from pathlib import Path

import pytest

from gpnn.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def figures_aside(text: str) -> list[str]:
    return [re.sub(r"[-\d.,e]*\d[-\d.,e]*", "#", line).split() for line in text.splitlines()]


def test_the_examples(tmp_path, monkeypatch, capsysbinary):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    commands = 0
    for language, block in BLOCK.findall(PAGE.read_text()):
        if language == "python":
            exec(block, names)
            continue
        command, *shown = block.splitlines()
        assert main(shlex.split(command.removeprefix("$ gpnn "))) == 0
        written = capsysbinary.readouterr()
        lines = figures_aside((written.out + written.err).decode())
        if "..." in shown:
            cut = shown.index("...")
            lines[cut : len(lines) - (len(shown) - cut - 1)] = [["..."]]
        assert not shown or lines == figures_aside("\n".join(shown))
        commands += 1
    assert commands == 11
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert names["answers"].column_names == ["id", "mean", "sd", "lower", "upper", "support"]
    assert 8 < names["scores"]["rmse"] < 20  # the noise is 10
    assert 0.85 < names["scores"]["coverage_90"] < 0.95
