"""A download is whole, checked and at its place, or there is nothing there that looks so."""

import builtins
import errno
import hashlib
import os
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from gpnn.datasets import download as module
from gpnn.datasets.download import download, verify
from gpnn.datasets.sources import check_archive
from gpnn.errors import FileError


@pytest.fixture
def content(zipped):
    return zipped(table=np.random.default_rng(0).bytes(1_000_000))  # random bytes stay as long as they are


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "some+table.zip"


def fetch(site, path, checksum=None, attempts=3):
    return download(site.url, path, checksum, check_archive, attempts, pause=0)


def left_beside(path):
    return {file.name.removeprefix(path.name) for file in path.parent.iterdir()} - {".lock"}


def test_a_plain_download_keeps_its_checksum_for_later(site, path, content):
    site.content = content
    assert fetch(site, path).read_bytes() == content
    assert left_beside(path) == {"", ".sha256"}
    assert path.with_name(path.name + ".sha256").read_text().strip() == hashlib.sha256(content).hexdigest()
    verify(path, None)
    assert len(site.requests) == 1


def test_a_cut_connection_is_resumed_where_it_broke_off(site, path, content):
    site.content, site.cuts = content, [300_000, 200_000]
    assert fetch(site, path).read_bytes() == content
    assert [request.get("Range") for request in site.requests] == [None, "bytes=300000-", "bytes=500000-"]
    assert left_beside(path) == {"", ".sha256"}


def test_what_arrived_is_kept_for_the_next_call(site, path, content):
    site.content, site.cuts = content, [300_000] * 2
    with pytest.raises(FileError, match=r"600,000 bytes.*Check the connection.*some\+table.zip"):
        fetch(site, path, attempts=2)
    assert left_beside(path) == {".part", ".part.version"}
    assert fetch(site, path).read_bytes() == content
    assert site.requests[-1]["Range"] == "bytes=600000-"


@pytest.mark.parametrize("how", ["no ranges", "no name for the version", "another version"])
def test_where_it_cannot_be_resumed_it_starts_again(site, path, content, zipped, how):
    site.content, site.cuts = zipped(table=b"old" * 200_000 + np.random.default_rng(1).bytes(500_000)), [300_000]
    if how == "no ranges":
        site.ranges = False
    if how == "no name for the version":
        site.etag = None
    with pytest.raises(FileError):
        fetch(site, path, attempts=1)
    site.content = content
    if how == "another version":
        site.etag = '"two"'
    assert fetch(site, path).read_bytes() == content


def test_a_finished_part_needs_no_more_bytes(site, path, content):
    """As if the machine had stopped just before the rename."""
    path.parent.mkdir()
    path.with_name(path.name + ".part").write_bytes(content)
    path.with_name(path.name + ".part.version").write_text('"one"')
    site.content = content
    assert fetch(site, path).read_bytes() == content
    assert len(site.requests) == 1


def test_a_part_longer_than_the_file_is_thrown_away(site, path, content):
    path.parent.mkdir()
    path.with_name(path.name + ".part").write_bytes(content + b"more")
    path.with_name(path.name + ".part.version").write_text('"one"')
    site.content = content
    assert fetch(site, path).read_bytes() == content


def test_a_truncated_archive_is_not_taken_for_whole(site, path, content):
    """The server does not say how long the file is, so only the archive itself can tell."""
    site.content, site.tells_length, site.cuts = content, False, [400_000]
    with pytest.raises(FileError, match=r"not a whole zip archive.*put aside"):
        fetch(site, path)
    assert left_beside(path) == {".rejected"}
    assert fetch(site, path).read_bytes() == content


def test_an_error_page_is_not_taken_for_an_archive(site, path):
    site.content = b"<!DOCTYPE html><title>Sorry</title>"
    with pytest.raises(FileError, match=r"begins with b'<!DOCTYPE html>"):
        fetch(site, path)
    assert not path.exists()


def test_wrong_bytes_are_put_aside(site, path, content, zipped):
    site.content = zipped(table=b"not what it should be")
    with pytest.raises(FileError, match=r"its sha256 is \w{64}, expected is \w{64}.*put aside as .*rejected"):
        fetch(site, path, checksum=hashlib.sha256(content).hexdigest())
    assert left_beside(path) == {".rejected"}


def test_a_second_download_must_agree_with_the_first(site, path, content, zipped):
    site.content = content
    fetch(site, path).unlink()
    site.content = zipped(table=b"renewed")
    with pytest.raises(FileError, match=r"expected is .*If the file was renewed there, delete .*sha256"):
        fetch(site, path)
    path.with_name(path.name + ".sha256").unlink()
    assert fetch(site, path).read_bytes() == site.content


def test_a_file_changed_later_is_noticed(site, path, content):
    site.content = content
    fetch(site, path).write_bytes(content[:-1] + b"!")
    with pytest.raises(FileError, match=r"changed or damaged on this machine.*Move it away"):
        verify(path, None)


@pytest.mark.parametrize(("statuses", "requests"), [([404], 1), ([503, 503, 503], 3)])
def test_errors_of_the_server(site, path, statuses, requests):
    site.statuses = list(statuses)
    with pytest.raises(FileError, match=str(statuses[0])):
        fetch(site, path)
    assert len(site.requests) == requests
    assert left_beside(path) == set()


def test_a_passing_error_does_not_lose_what_arrived(site, path, content):
    site.content, site.cuts, site.statuses = content, [300_000], []
    with pytest.raises(FileError):
        fetch(site, path, attempts=1)
    site.statuses = [503]
    assert fetch(site, path).read_bytes() == content
    assert site.requests[-1]["Range"] == "bytes=300000-"


def test_no_server_at_all(path):
    with pytest.raises(FileError, match=r"Cannot download.*Check the connection"):
        download("http://127.0.0.1:9/table.zip", path, None, check_archive, attempts=2, pause=0)


class FullDisk:
    """A file that takes so many bytes and then no more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, chunk):
        self.file.write(chunk[: self.room])
        self.room -= len(chunk)
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_full_disk_keeps_what_arrived_and_goes_on_later(site, path, content, monkeypatch):
    site.content = content

    def open_on_a_full_disk(name, mode):
        file = builtins.open(name, mode)  # noqa: SIM115, whoever calls this closes it
        return FullDisk(file, 300_000) if mode == "ab" else file

    monkeypatch.setattr(module, "open", open_on_a_full_disk, raising=False)
    with pytest.raises(FileError, match=r"The disk is full.*part and will be continued.*GPNN_CACHE_DIR"):
        fetch(site, path)
    assert left_beside(path) == {".part", ".part.version"}
    monkeypatch.undo()
    assert fetch(site, path).read_bytes() == content
    assert site.requests[-1]["Range"] == "bytes=300000-"


def test_a_folder_that_cannot_be_written(site, tmp_path):
    Path(tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(FileError, match=r"Cannot write into .*taken"):
        fetch(site, tmp_path / "taken" / "table.zip")


def test_two_at_once_download_once(site, path, content):
    site.content = content
    threads = [Thread(target=fetch, args=(site, path)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == content
    assert len(site.requests) == 1
