"""Where files are looked for, in which order, and what is said when they are not there."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from gpnn import datasets
from gpnn.datasets import registry, sources
from gpnn.errors import FileError, GPnnWarning, InvalidInputError, MissingExtraError

ROAD = {"3D_spatial_network.txt": "1,9.0,56.0,17.0\n2,9.1,56.1,18.0\n"}


@pytest.fixture
def road3d(site, zipped, monkeypatch):
    """road3d, to be had from the test's own server."""
    site.content = zipped(**ROAD)
    dataset = replace(datasets.info("road3d"), url=site.url)
    monkeypatch.setitem(registry.REGISTRY, "road3d", dataset)
    return dataset


def test_downloaded_once_then_from_the_cache(road3d, site, folders):
    X, y = datasets.load("road3d")
    assert X.tolist() == [[9.0, 56.0], [9.1, 56.1]]
    assert y.tolist() == [17, 18]
    assert datasets.path("road3d") == folders[1] / "some+table.zip"
    datasets.load("road3d")
    assert len(site.requests) == 1


def test_the_data_directory_comes_first_and_parquet_before_the_archive(road3d, folders, zipped):
    data, cache = folders
    cached = datasets.path("road3d")
    assert cached.parent == cache
    archive = data / "some+table.zip"
    archive.write_bytes(zipped(**ROAD))
    assert datasets.path("road3d") == archive
    pd.DataFrame([[1, 2.0, 3.0, 4.0]], columns=road3d.columns).to_parquet(data / "road3d.parquet")
    assert datasets.path("road3d") == data / "road3d.parquet"


def test_a_cached_file_that_changed_is_refused(road3d, folders, zipped):
    datasets.path("road3d").write_bytes(zipped(other="file"))
    with pytest.raises(FileError, match="changed or damaged"):
        datasets.load("road3d")


def test_a_wrong_checksum_is_refused(road3d, monkeypatch, folders):
    monkeypatch.setitem(registry.REGISTRY, "road3d", replace(road3d, sha256="0" * 64))
    with pytest.raises(FileError, match=f"expected {'0' * 64}"):
        datasets.load("road3d")
    assert not (folders[1] / "some+table.zip").exists()


def test_another_parquet_than_ours_is_used_but_said(folders):
    frame = pd.DataFrame([[17.0, *range(9)]], columns=["RMSD", *(f"F{k}" for k in range(1, 10))])
    frame.to_parquet(folders[0] / "protein_casp.parquet")
    with pytest.warns(GPnnWarning, match="not the file that this package was tried with"):
        assert datasets.path("protein").exists()


def test_what_cannot_be_downloaded_is_explained(folders):
    with pytest.raises(FileError, match=r"Make egm96_geoid.parquet from https.*geoid_height_cm.*GPNN_DATA_DIR"):
        datasets.load("egm96_geoid")


def test_a_data_directory_that_is_not_there(monkeypatch):
    monkeypatch.setenv("GPNN_DATA_DIR", "/no/such/folder")
    with pytest.raises(InvalidInputError, match="GPNN_DATA_DIR = '/no/such/folder' is not a folder"):
        datasets.load("bike")


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "place/gpnn"),
        ("win32", "LOCALAPPDATA", "place/gpnn"),
        ("darwin", "XDG_CACHE_HOME", "Library/Caches/gpnn"),
    ],
)
def test_each_platform_has_its_cache(monkeypatch, platform, variable, expected):
    monkeypatch.delenv("GPNN_CACHE_DIR")
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, "place")
    assert sources.cache_directory().as_posix().endswith(expected)


def test_without_pandas_the_install_line_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gpnn\[data\]'"):
        datasets.load("bike")


def test_nothing_but_reading_needs_pandas():
    code = (
        "import sys; sys.modules['pandas'] = sys.modules['pyarrow'] = None\n"
        "from gpnn.cli import main; main(['datasets', 'list'])\n"
        "sys.exit(main(['datasets', 'get', 'bike', '--out', 'x.csv']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "poletele" in done.stdout
    assert "pip install 'gpnn[data]'" in done.stderr


# --- the registry -----------------------------------------------------------------------------------------------------


def test_names_by_kind():
    paper = ["poletele", "bike", "protein", "ctslice", "road3d", "song", "houseelectric"]
    assert datasets.names("paper") == paper
    assert datasets.names("stand-in") == ["britain_magnetic", "covtype", "blogfeedback", "egm96_geoid"]
    assert datasets.names("left out") == ["kegg_directed", "kegg_undirected", "buzz"]
    assert len(datasets.names()) == 14
    with pytest.raises(InvalidInputError, match="Choose one of: paper, stand-in, left out"):
        datasets.names("papers")


@pytest.mark.parametrize(
    ("name", "near"), [("house_electric", "houseelectric"), ("Road3D", "road3d"), ("kegg", "kegg_directed")]
)
def test_unknown_names_list_the_near_ones(name, near):
    with pytest.raises(InvalidInputError, match=f"Near it are: .*{near}"):
        datasets.load(name)


def test_sizes_are_those_of_the_papers_table():
    """Its n is the training part, 7/9 of the rows, in two digits; for Song it prints the usual fixed split instead."""
    printed = {"poletele": (4.6e3, 19), "bike": (1.4e4, 13), "protein": (3.6e4, 9), "ctslice": (4.2e4, 378),
               "road3d": (3.4e5, 2), "houseelectric": (1.6e6, 8)}  # fmt: skip
    for name, (n_train, d) in printed.items():
        assert float(f"{datasets.info(name).n * 7 / 9:.1e}") == n_train
        assert datasets.info(name).d == d


def test_every_entry_is_complete():
    for name in datasets.names():
        entry = datasets.info(name)
        assert entry.kind in registry.KINDS
        assert all((entry.title, entry.preparation, entry.citation, entry.licence, entry.page, entry.parquet))
        assert (entry.prepare is None) == (entry.kind == "left out")
        assert (entry.url is None) == (not entry.member)


def test_the_page_in_the_documentation_is_in_step():
    page = Path(__file__).parents[2] / "docs" / "datasets.md"
    if not page.exists():
        pytest.skip("the documentation is not part of this copy")
    text = page.read_text()
    for name in datasets.names():
        entry = datasets.info(name)
        tried = "yes" if entry.tried else "no"
        assert f"| `{name}` | {entry.title} | {entry.n:,} | {entry.d} | {tried} | {entry.preparation} |" in text
        assert f"| `{name}` | [{entry.licence}]({entry.page}) | {entry.citation} | `{entry.parquet}` |" in text
