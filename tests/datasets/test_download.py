"""A download is whole, checked and at its place, or there is nothing there that looks so."""

import errno
import hashlib
import os
import sys
from pathlib import Path

import numpy as np
import pooch
import pytest

from gpnn.datasets.download import download, verify
from gpnn.datasets.sources import check_archive
from gpnn.errors import FileError, MissingExtraError


@pytest.fixture
def content(zipped):
    return zipped(table=np.random.default_rng(0).bytes(1_000_000))  # random bytes stay as long as they are


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "some+table.zip"


def fetch(site, path, checksum=None, retries=0):
    return download(site.url, path, checksum, check_archive, retries)


def left_beside(path):
    return {file.name.removeprefix(path.name) for file in path.parent.iterdir()}


def test_a_plain_download_keeps_its_checksum_for_later(site, path, content, capfd):
    site.content = content
    assert fetch(site, path).read_bytes() == content
    assert left_beside(path) == {"", ".sha256"}
    assert path.with_name(path.name + ".sha256").read_text().strip() == hashlib.sha256(content).hexdigest()
    verify(path, None)
    assert len(site.requests) == 1
    assert capfd.readouterr() == ("", "")


def test_a_cut_connection_is_tried_again(site, path, content):
    site.content, site.cuts, site.statuses = content, [300_000, 200_000], [503]
    assert fetch(site, path, retries=3).read_bytes() == content
    assert len(site.requests) == 4
    assert left_beside(path) == {"", ".sha256"}


@pytest.mark.parametrize("tells_length", [True, False])
def test_half_a_file_is_not_taken_for_whole(site, path, content, tells_length):
    """If the server does not say how long the file is, only the archive itself can tell."""
    site.content, site.tells_length, site.cuts = content, tells_length, [400_000]
    message = "Check the connection.*cache/some" if tells_length else "not used: it is not a whole zip archive"
    with pytest.raises(FileError, match=message):
        fetch(site, path)
    assert left_beside(path) == set()
    assert fetch(site, path).read_bytes() == content


def test_an_error_page_is_not_taken_for_an_archive(site, path):
    site.content = b"<!DOCTYPE html><title>Sorry</title>"
    with pytest.raises(FileError, match=r"begins with b'<!DOCTYPE html>"):
        fetch(site, path)
    assert left_beside(path) == set()


def test_wrong_bytes_are_refused(site, path, content, zipped):
    site.content = zipped(table=b"not what it should be")
    expected, found = (hashlib.sha256(bytes_).hexdigest() for bytes_ in (content, site.content))
    with pytest.raises(FileError, match=rf"is not used: .*expected {expected} but got {found}"):
        fetch(site, path, checksum=expected)
    assert left_beside(path) == set()


def test_a_second_download_must_agree_with_the_first(site, path, content, zipped):
    site.content = content
    fetch(site, path).unlink()
    site.content = zipped(table=b"renewed")
    with pytest.raises(FileError, match=r"expected .*If the file was renewed there, delete .*sha256"):
        fetch(site, path)
    path.with_name(path.name + ".sha256").unlink()
    assert fetch(site, path).read_bytes() == site.content


def test_a_file_changed_later_is_noticed(site, path, content):
    site.content = content
    fetch(site, path).write_bytes(content[:-1] + b"!")
    with pytest.raises(FileError, match=r"changed or damaged on this machine.*Move it away"):
        verify(path, None)


@pytest.mark.parametrize("status", [404, 503])
def test_errors_of_the_server(site, path, status):
    site.statuses = [status]
    with pytest.raises(FileError, match=str(status)):
        fetch(site, path)
    assert left_beside(path) == set()


def test_no_server_at_all(path):
    with pytest.raises(FileError, match=r"Cannot download.*Check the connection"):
        download("http://127.0.0.1:9/table.zip", path, None, check_archive, retries=1)


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), FileError, "The disk is full.*GPNN_CACHE_DIR"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_what_stops_it_on_the_way_leaves_nothing_behind(site, path, content, monkeypatch, error, raised, message):
    site.content = content

    class Stopped(pooch.HTTPDownloader):
        def __call__(self, url, file, *_):
            Path(file).write_bytes(content[:1000])
            raise error

    monkeypatch.setattr(pooch, "HTTPDownloader", Stopped)
    with pytest.raises(raised, match=message):
        fetch(site, path)
    assert left_beside(path) == set()


def test_a_folder_that_cannot_be_written(site, tmp_path):
    Path(tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(FileError, match=r"Cannot write into .*taken"):
        fetch(site, tmp_path / "taken" / "table.zip")


def test_progress_is_shown_in_a_terminal(site, path, content, monkeypatch, capsys):
    site.content = content
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fetch(site, path)
    assert "some+table.zip: " in capsys.readouterr().err


def test_without_pooch(site, path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gpnn\[data\]'"):
        fetch(site, path)
