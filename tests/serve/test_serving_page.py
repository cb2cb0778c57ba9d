"""Every example of docs/serving.md is run against a server, and prints what the page shows, up to figures."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from asking import Running

from gpnn.cli import main

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def figures_aside(text: str) -> list[str]:
    text = re.sub(r'"version": ?"\w+"', '"version": #', text).replace('": ', '":').replace(", ", ",")
    return [re.sub(r"-?\d[\d.]*(e-?\d+)?", "#", line) for line in text.splitlines()]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(BLOCK.search((DOCS / "command_line.md").read_text())[2], names)
    fit = ["fit", "train.parquet", "--target", "price", "--ignore", "id", "--kernel", "rbf", "--out", "model.gpnn"]
    assert main(fit) == 0
    (_, start), *blocks = BLOCK.findall((DOCS / "serving.md").read_text())
    arguments = start.splitlines()[0].split()[3:]
    running = Running(*arguments, folder=tmp_path)
    try:
        assert figures_aside(start.splitlines()[1]) == [
            line.replace(str(running.port), "8000") for line in figures_aside(running.errors.read_text())
        ]
        for language, block in blocks:
            here = block.replace("localhost:8000", f"127.0.0.1:{running.port}")
            if language == "python":
                exec(here, names)
                continue
            command, *shown = here.splitlines()
            written = subprocess.run(command.removeprefix("$ "), shell=True, capture_output=True, text=True).stdout
            if shown[-1] == "...":
                assert written.splitlines()[0] == shown[0]
                assert len(written.splitlines()) == 501
            else:
                assert figures_aside(written) == figures_aside("\n".join(shown))
    finally:
        running.stop()
    assert names["predictions"].num_rows == 500
