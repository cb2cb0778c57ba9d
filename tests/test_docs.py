"""Every example in the documentation is run, every page can be found, every link leads somewhere."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

import gpnn

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BUILT = {DOCS / "_build", DOCS / "gallery"}
PAGES = sorted(page for page in DOCS.rglob("*.md") if not BUILT & set(page.parents))
TEXTS = sorted([*PAGES, *ROOT.glob("*.md"), ROOT / "experiments" / "README.md"])


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text()], ids=name)
def test_examples(page):
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.failed == 0


def test_readme_example(few_steps):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code.replace("100_000", "5_000"), {})
    assert "coverage_90" in printed.getvalue()


def test_every_page_is_in_the_table_of_contents():
    trees = re.findall(r"```{toctree}\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    listed = {line for tree in trees for line in tree.split("\n") if line and not line.startswith(":")}
    assert {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES} - {"index"} <= listed


@pytest.mark.parametrize("text", TEXTS, ids=name)
def test_links_lead_somewhere(text):
    prose = re.sub(r"```.*?```", "", text.read_text(), flags=re.DOTALL)
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]
    pages = [f"{page}.md" for page in re.findall(r"{doc}`(?:[^`<]*<)?([\w./]+)>?`", prose) if "gallery/" not in page]
    examples = [page for page in re.findall(r"{doc}`(?:[^`<]*<)?[./]*gallery/(\w+)>?`", prose) if page != "index"]
    missing = [link for link in [*links, *pages] if link and not (text.parent / link).exists()]
    missing += [example for example in examples if not (ROOT / "examples" / f"{example}.py").exists()]
    assert not missing


def test_one_version():
    assert re.search(rf"^version: {re.escape(gpnn.__version__)}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert gpnn.__version__ in (ROOT / "CHANGELOG.md").read_text()
