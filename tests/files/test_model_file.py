"""The model file: nothing is lost, nothing is run, nothing broken is taken for whole."""

import copy
import errno
import gc
import json
import mmap
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import warnings
import zlib
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

import gpnn
from gpnn import GPnnRegressor, GPnnWarning, Hyperparameters, InvalidInputError, persistence
from gpnn.errors import FileError
from gpnn.neighbors import IVF, Flat, KDTree
from gpnn.stages import shapes

FIXED = struct.Struct("<8sIIQ")
HEADER_AT = 56
GIVEN = {"params": Hyperparameters(1.0, 0.9, 0.1), "n_neighbors": 20, "random_state": 0, "n_jobs": 1}
"""Nothing to learn: a fit takes no time."""


@pytest.fixture(scope="module")
def data():
    """Much noise on one side and little on the other, so that calibration finds something local to learn."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3)) * [1.0, 20.0, 0.003]
    y = np.sin(X[:, 0]) + X[:, 1] / 20 + np.where(X[:, 0] > 0, 3.0, 0.02) * rng.normal(size=1500)
    return X[:1200], y[:1200], X[1200:]


@pytest.fixture(scope="module")
def small(data, tmp_path_factory):
    """A model of 600 rows with everything in it, and its file's bytes, small enough to be broken thousands of times."""
    X, y, _ = data
    model = GPnnRegressor(**GIVEN | {"n_neighbors": 5}, calibration_size=300).fit(X[:600], y[:600])
    assert model._scale is not None
    path = tmp_path_factory.mktemp("small") / "model.gpnn"
    persistence.write(path, model, {"columns": ["a", "b", "c"]})
    return model, path.read_bytes()


def assert_same(a: GPnnRegressor, b: GPnnRegressor, X) -> None:
    ours, theirs = a.predict_distribution(X), b.predict_distribution(X)
    np.testing.assert_array_equal(ours.mean, theirs.mean)
    np.testing.assert_array_equal(ours.variance, theirs.variance)
    levels = [0.01, 0.5, 0.9]
    np.testing.assert_array_equal(a.predict_quantiles(X, levels), b.predict_quantiles(X, levels))
    np.testing.assert_array_equal(a.kneighbors(X).indices, b.kneighbors(X).indices)


# --- nothing is lost --------------------------------------------------------------------------------------------------

SETTINGS = [
    *({"kernel": kernel, "index": index} for kernel in gpnn.kernels.KERNELS for index in ("kdtree", "flat", "ivf")),
    {"index": KDTree(slack=2.0)},
    {"index": IVF(recall=1.0, n_cells=7)},
    {"index": Flat()},
    {"whitening": "full"},
    {"whitening": "ranks"},
    {"whitening": "none", "params": Hyperparameters([1, 30, 0.01], 0.9, 0.1)},
    {"mean": "zero"},
    {"mean": "linear", "calibration": "global"},
    {"calibration_size": 0},
    {"calibration_size": 50, "return_rows": False},
    {"holdout": "patches"},
    {"unbiased_mean": True, "batch_size": 7},
    {"params": None, "refine": False, "n_blocks": 2, "block_size": 60, "kernel": "rbf", "whitening": "diagonal"},
    {"params": None, "refine": True, "kernel": "matern52", "whitening": "full"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: re.sub(r" object at \w+", "", str(settings)))
def test_predictions_are_the_same_bit_for_bit(data, tmp_path, settings):
    X, y, X_star = data
    model = GPnnRegressor(**GIVEN | settings).fit(X, y)
    model.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    assert_same(model, loaded, X_star)
    assert loaded.fit_report_ == model.fit_report_
    assert loaded.alpha_interval_ == model.alpha_interval_
    np.testing.assert_array_equal(loaded.calibration_rows_, model.calibration_rows_)
    given, kept = model.get_params(), loaded.get_params()
    assert type(given.pop("index")) is type(kept.pop("index"))
    assert given == kept


@pytest.mark.parametrize("shape", ["gaussian", "student_t", "empirical"])
def test_every_shape_of_errors(small, data, tmp_path, shape):
    model = copy.copy(small[0])
    residuals = np.sort(np.random.default_rng(0).standard_t(4, size=200))
    model.shape_ = shapes._FITS[shape](residuals)
    model.save(tmp_path / "model.gpnn")
    assert_same(model, GPnnRegressor.load(tmp_path / "model.gpnn"), data[2])


def test_column_names_and_schema(data, tmp_path):
    X, y, X_star = data
    names = ["Länge", "☃", 'a "b", c']
    model = GPnnRegressor(**GIVEN).fit(pd.DataFrame(X, columns=names), y)
    schema = {"columns": {"Länge": "number"}, "levels": [["a", "b"], None, 1.5]}
    persistence.write(tmp_path / "model.gpnn", model, schema)
    loaded, found = persistence.read(tmp_path / "model.gpnn")
    assert found == schema
    assert loaded.feature_names_in_.tolist() == names
    assert loaded.feature_names_in_.dtype == object
    assert_same(model, loaded, pd.DataFrame(X_star, columns=names))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(pd.DataFrame(X_star, columns=["x", "y", "z"]))


def test_infinities_tuples_and_numpy_numbers_come_back(small, tmp_path):
    model = copy.copy(small[0])
    report = {
        "inf": (np.inf, -np.inf), "list": [1, 2.5, None, True], "f4": np.float32(0.1), "a.b": np.arange(3),
        "a": {"b": np.arange(4.0)}, "none": np.zeros((0, 2)), "yes": np.True_, "big": np.int64(2**62),
        "\ud800": "\udfff",  # halves of characters: no valid text, but Python has them
    }  # fmt: skip
    model.fit_report_, model.note = report, "not something that fit leaves"
    model.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    found = loaded.fit_report_
    assert not hasattr(loaded, "note")
    assert found["inf"] == (np.inf, -np.inf)
    assert found["\ud800"] == "\udfff"
    assert found["list"] == [1, 2.5, None, True]
    assert isinstance(found["f4"], np.float32)
    assert found["f4"] == np.float32(0.1)
    assert (found["yes"], found["big"], found["none"].shape) == (True, 2**62, (0, 2))
    np.testing.assert_array_equal(found["a.b"], np.arange(3))
    np.testing.assert_array_equal(found["a"]["b"], np.arange(4.0))


def test_arrays_are_read_only_views_of_one_mapping(small, tmp_path):
    (tmp_path / "model.gpnn").write_bytes(small[1])
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    arrays = [
        loaded._y,
        loaded.index_.order,
        loaded.index_._rows.strips,
        loaded.whitener_.x_map,
        loaded.calibration_rows_,
    ]
    for array in arrays:
        assert not array.flags.writeable
        assert array.ctypes.data % 64 == 0
        assert type(array) is np.ndarray
    (mapping,) = {id(array.base): array.base for array in arrays}.values()
    assert isinstance(mapping, mmap.mmap)


def test_a_loaded_model_does_all_that_a_model_does(small, data, tmp_path):
    model, content = small
    X, y, X_star = data
    path = tmp_path / "model.gpnn"
    path.write_bytes(content)
    loaded = GPnnRegressor.load(path)
    for other in (pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded)):
        assert_same(model, other, X_star)
    loaded.save(path)  # over the file it is mapped from
    assert GPnnRegressor.load(path).fit_report_ == model.fit_report_
    path.unlink()
    assert_same(model, loaded, X_star)
    again = clone(loaded).fit(X[:600], y[:600])
    assert_same(model, again, X_star)
    assert_same(model, loaded.fit(X[:600], y[:600]), X_star)


def test_the_same_model_gives_the_same_bytes(small, tmp_path):
    (tmp_path / "model.gpnn").write_bytes(small[1])
    persistence.write(tmp_path / "again.gpnn", *persistence.read(tmp_path / "model.gpnn"))
    assert (tmp_path / "again.gpnn").read_bytes() == small[1]


def test_another_process_predicts_the_same_and_compiles_nothing(small, data, tmp_path):
    model, content = small
    (tmp_path / "model.gpnn").write_bytes(content)
    expected = GPnnRegressor.load(tmp_path / "model.gpnn").predict(
        data[2]
    )  # compiled for read-only arrays here, if new
    np.save(tmp_path / "X.npy", data[2])
    script = f"""
import gc, numpy as np, gpnn
from numba.core.dispatcher import Dispatcher
mean = gpnn.GPnnRegressor.load("model.gpnn").predict(np.load("X.npy"))
np.save("mean.npy", mean)
{COMPILED_HERE}
print(compiled)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=tmp_path, env=environment,
                         capture_output=True, text=True, check=True)  # fmt: skip
    np.testing.assert_array_equal(np.load(tmp_path / "mean.npy"), expected)
    np.testing.assert_array_equal(model.predict(data[2]), expected)
    assert run.stdout.strip() == "[]"


COMPILED_HERE = """
compiled = [f.py_func.__name__ for f in gc.get_objects() if isinstance(f, Dispatcher) and f.stats.cache_misses]
"""


def test_describe_needs_the_header_only(small, tmp_path):
    model, content = small
    path = tmp_path / "model.gpnn"
    path.write_bytes(content[:-2000] + bytes(2000))  # the arrays are ruined, the header is not
    facts = persistence.describe(path)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["gpnn"] == gpnn.__version__
    assert (facts["format"], facts["bytes"]) == (1, len(content))
    assert facts["schema"] == {"columns": ["a", "b", "c"]}
    assert facts["settings"]["n_neighbors"] == 5
    assert facts["settings"]["params"]["noise_variance"] == 0.1
    assert facts["learned"]["alpha_"] == model.alpha_
    assert facts["learned"]["index_"]["type"] == "KDTree"
    assert facts["learned"]["_y"] == {"dtype": "<f8", "shape": [600]}
    assert facts["learned"]["fit_report_"]["n"] == 600


# --- what cannot be kept ----------------------------------------------------------------------------------------------


def test_what_would_need_anothers_code_is_refused(data, small, tmp_path):
    X, y, _ = data
    path = tmp_path / "model.gpnn"
    with pytest.raises(InvalidInputError, match=r"mean_? is a LinearRegression.*joblib"):
        GPnnRegressor(**GIVEN, mean=LinearRegression()).fit(X, y).save(path)

    class Mine(KDTree):
        pass

    with pytest.raises(InvalidInputError, match=r"index_? is a .*Mine"):
        GPnnRegressor(**GIVEN, index=Mine()).fit(X, y).save(path)

    class Special(GPnnRegressor):
        pass

    with pytest.raises(InvalidInputError, match="not a Special"):
        Special(**GIVEN).fit(X, y).save(path)
    with pytest.raises(NotFittedError):
        GPnnRegressor().save(path)
    for schema in ({"value": np.nan}, {"value": {1, 2}}):
        with pytest.raises(InvalidInputError, match="JSON"):
            persistence.write(path, small[0], schema)
    with pytest.raises(InvalidInputError, match="drop columns"):
        persistence.write(path, small[0], {"long": "x" * 2**24})
    odd = copy.copy(small[0])
    for value, message in (
        ({1: 2}, "not text"),
        ({"a": np.zeros(1, complex)}, "array of complex128"),
        (None, "fit_rep"),
    ):
        odd.fit_report_ = value
        with pytest.raises(InvalidInputError, match=message):
            odd.save(path)
    assert list(tmp_path.iterdir()) == []


def test_settings_for_fitting_only_are_left_out_with_a_warning(data, tmp_path):
    X, y, X_star = data
    model = GPnnRegressor(**GIVEN | {"holdout": KFold(5), "random_state": np.random.RandomState(0)}).fit(X, y)
    with pytest.warns(GPnnWarning) as caught:
        model.save(tmp_path / "model.gpnn")
    assert [str(warning.message).split()[0] for warning in caught] == ["holdout", "random_state"]
    assert caught[0].filename == __file__
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    assert (loaded.holdout, loaded.random_state) == ("random", None)
    assert_same(model, loaded, X_star)


# --- whole or not there -----------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_what_was_there(small, tmp_path, monkeypatch):
    path = tmp_path / "model.gpnn"
    path.write_bytes(b"before")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="disk is full"):
        small[0].save(path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_named(small, tmp_path):
    with pytest.raises(FileError, match="nowhere"):
        small[0].save(tmp_path / "nowhere" / "model.gpnn")


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals and limits of Unix")
def test_a_file_size_limit_and_a_killed_process_leave_what_was_there(small, tmp_path):
    path = tmp_path / "model.gpnn"
    path.write_bytes(small[1])
    script = """
import os, resource, signal, gpnn
model = gpnn.GPnnRegressor.load("model.gpnn")
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
try:
    model.save("model.gpnn")
except gpnn.errors.FileError as error:
    print(error, os.listdir(), flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
model.save("model.gpnn")
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL
    assert re.search(r"Cannot write into.*\['model.gpnn'\]", run.stdout)
    assert path.read_bytes() == small[1]


# --- nothing broken is taken for whole --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a gpnn model file: its first bytes are none"),
        (b"x,y\n1,2\n", "not a gpnn model file.*78 2c 79"),
        (b"PAR1" + bytes(1000), "not a gpnn model file"),
        (b"\x89GPNN", "ends after 5 bytes"),
    ],
)
def test_other_files(tmp_path, content, message):
    path = tmp_path / "model.gpnn"
    path.write_bytes(content)
    for read in (persistence.read, persistence.describe, GPnnRegressor.load):
        with pytest.raises(FileError, match=message):
            read(path)


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileError, match="is not a file"):
        GPnnRegressor.load(tmp_path / "missing.gpnn")
    with pytest.raises(FileError, match="is not a file"):
        GPnnRegressor.load(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(FileError, match="is not a file"):
            GPnnRegressor.load(tmp_path / "pipe")


def test_future_and_impossible_versions(small, tmp_path):
    path = tmp_path / "model.gpnn"
    path.write_bytes(small[1][:8] + struct.pack("<I", 2) + small[1][12:])
    with pytest.raises(FileError, match=r"version 2 .* reads up to 1.*pip install --upgrade gpnn"):
        GPnnRegressor.load(path)
    path.write_bytes(packed(header_of(small[1]), arrays_of(small[1]), version=0))
    with pytest.raises(FileError, match="no version 0"):
        GPnnRegressor.load(path)


def header_of(content: bytes) -> bytes:
    return content[HEADER_AT : HEADER_AT + FIXED.unpack_from(content)[2]]


def arrays_of(content: bytes) -> bytes:
    return content[-(-(HEADER_AT + len(header_of(content))) // 64) * 64 :]


def packed(header: bytes, arrays: bytes, version: int = 1) -> bytes:
    """A file whose lengths and digest are right, whatever its header says."""
    arrays_at = -(-(HEADER_AT + len(header)) // 64) * 64
    fixed = FIXED.pack(b"\x89GPNN\r\n\x1a", version, len(header), arrays_at + len(arrays))
    return (fixed + sha256(fixed + header).digest() + header).ljust(arrays_at, b"\0") + arrays


def with_header(content: bytes, change) -> bytes:
    """The same file with its header changed by someone who knows the format."""
    header = json.loads(header_of(content))
    change(header)
    return packed(json.dumps(header).encode(), arrays_of(content))


def test_the_format_is_as_documented(small):
    """Read with nothing but the standard library and the page on the format."""
    model, content = small
    magic, version, header_length, length = FIXED.unpack_from(content)
    assert (magic, version, length) == (b"\x89GPNN\r\n\x1a", 1, len(content))
    header = content[HEADER_AT : HEADER_AT + header_length]
    assert sha256(content[:24] + header).digest() == content[24:56]
    table = json.loads(header)["arrays"]
    begin = -(-(HEADER_AT + header_length) // 64) * 64
    assert packed(header, content[begin:]) == content
    entry = table["_y"]
    raw = content[begin + entry["offset"] :][: 8 * entry["shape"][0]]
    assert struct.unpack(f"<{entry['shape'][0]}d", raw) == tuple(model._y)
    assert [zlib.crc32(raw)] == entry["crc32"]


def test_bytes_changed_added_removed_or_moved_are_noticed(small, tmp_path):
    content, rng, path = small[1], np.random.default_rng(1), tmp_path / "model.gpnn"
    size = len(content)

    def flip(at: int) -> bytes:
        return content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :]

    def cases():
        for at in [*range(HEADER_AT + 8), *rng.integers(size, size=1500).tolist()]:
            yield flip(at)
        for end in [*range(100), *rng.integers(size, size=300).tolist(), size - 1]:
            yield content[:end]
        for _ in range(300):
            at, length = int(rng.integers(size)), int(rng.integers(1, 200))
            noise = rng.bytes(length)
            yield content[:at] + noise + content[at:]
            yield content[:at] + content[at + length :]
            yield content[:at] + noise + content[at + length :]
            other = int(rng.integers(size - 64)) // 64 * 64
            at = at // 64 * 64
            low, high = sorted((at, other))
            if content[low : low + 64] != content[high : high + 64]:
                moved = bytearray(content)
                moved[low : low + 64], moved[high : high + 64] = content[high : high + 64], content[low : low + 64]
                yield bytes(moved)

    n_cases = 0
    for case in cases():
        if case == content:
            continue
        n_cases += 1
        path.write_bytes(case)
        with pytest.raises(FileError, match=r"damaged|not a gpnn|version"):
            persistence.read(path)
    assert n_cases > 2500


HOSTILE = [
    None, True, -1, 0, 1, 7, 2**31, 2**63, -(2**63), 10**400, 1e308, 0.5, "", "x", "inf", "|O", "|O8", "<f8", "<U9",
    [], [0], [-1, 3], [2**62, 2**62], [1] * 40, {}, {"type": "array", "value": "_y"},
    {"type": "array", "value": "nothing"}, {"type": "array", "value": ["_y"]}, {"type": "dict"},
    {"type": "float", "value": "nan"}, {"type": "float", "value": "1e3"}, {"type": "tuple", "value": 3},
    {"type": "os.system", "value": {"command": "exit"}}, {"type": "GPnnRegressor", "value": {}},
    {"type": "texts", "value": [1, None]}, {"type": "Rows", "value": {"strips": 1, "n": 1}},
    {"type": "Shape", "value": {"name": "empirical"}}, {"type": "Constant", "value": {"value": None, "self": 1}},
    {"type": "Flat", "value": {"__class__": 1}}, {"type": "KDTree", "value": {}}, {"type": ["Flat"], "value": {}},
]  # fmt: skip


def places(node, path=()):
    """Every place in a JSON tree."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


def survives(path, X, verify: bool) -> bool:
    """Whether the file loads; then it must also predict, or say why not, without harm."""
    try:
        loaded = persistence.read(path, verify).regressor
    except FileError:
        return False
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            loaded.predict_interval(X)
            loaded.kneighbors(X)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        pass
    return True


def test_hostile_headers_do_no_harm(small, data, tmp_path):
    content, rng, path = small[1], np.random.default_rng(2), tmp_path / "model.gpnn"
    everywhere = [place for place in places(json.loads(header_of(content))) if place]
    loaded = 0
    for case in range(2000):
        place = everywhere[case % len(everywhere)]
        value = HOSTILE[rng.integers(len(HOSTILE))]

        def change(header, place=place, value=value, case=case):
            *before, last = place
            for key in before:
                header = header[key]
            if case % 7 == 0:
                del header[last]
            elif case % 7 == 1 and isinstance(header, dict):
                header[rng.choice(["predict", "__class__", "__init__", "x_", "_rows", "n"])] = header.pop(last)
            else:
                header[last] = value

        path.write_bytes(with_header(content, change))
        loaded += survives(path, data[2][:3], verify=False)
    assert 100 < loaded < 1200  # harmless changes, as of a report or a setting, are no error


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("learned", "n_neighbors_"), 2**40),
        (("learned", "n_neighbors_"), 0),
        (("learned", "_scale", "value", "n_neighbors"), 0.5),
        (("learned", "n_features_in_"), 2),
        (("learned", "index_", "value", "_depth"), 27),
        (("learned", "index_", "value", "_rows", "value", "n"), 580),
        (("learned", "index_", "value", "_rows", "value", "n"), 10**6),
        (("learned", "index_", "value", "_rows", "value", "strips"), {"type": "array", "value": "_y"}),
        (("learned", "whitener_", "value", "x_map"), {"type": "array", "value": "_y"}),
        (("learned", "predict"), 1),
        (("learned", "__class__"), 1),
        (("learned", "__dict__"), {"type": "dict", "value": {}}),
        (("learned", "_make_engine"), 1),
        (("settings", "kernel"), "x"),
        (("settings", "n_jobs"), 0),
        (("settings", "unknown"), 0),
        (("arrays", "_y", "offset"), -64),
        (("arrays", "_y", "offset"), 0),
        (("arrays", "_y", "dtype"), "|O"),
        (("arrays", "_y", "shape"), [2**61]),
        (("arrays", "_y", "shape"), [-600]),
        (("arrays", "_y", "shape"), [0, 2**62]),
        (("arrays", "shape_.residuals", "shape"), [0, 10**30]),
        (("learned", "os_"), {"type": "os.system", "value": {"command": "exit"}}),
        (("arrays", "_y", "crc32"), []),
        (("arrays", "more"), {"dtype": "<f8", "shape": [1], "offset": 0, "crc32": [0]}),
    ],
    ids=str,
)
def test_what_would_lead_compiled_code_astray_is_refused(small, tmp_path, place, value):
    def change(header):
        *before, last = place
        for key in before:
            header = header[key]
        header[last] = value

    path = tmp_path / "model.gpnn"
    path.write_bytes(with_header(small[1], change))
    with pytest.raises(FileError):
        persistence.read(path, verify=False)


@pytest.mark.parametrize(
    "header", [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 10**6, b'{"a":' * 10**5, b'{"a": NaN}', b"9" * 10**5]
)
def test_headers_that_are_not_ours(small, tmp_path, header):
    path = tmp_path / "model.gpnn"
    path.write_bytes(packed(header, arrays_of(small[1])))
    for read in (persistence.read, persistence.describe):
        with pytest.raises(FileError):
            read(path)


def test_deep_nesting_is_refused(small, tmp_path):
    path, deep = tmp_path / "model.gpnn", []
    for _ in range(200):
        deep = [deep]
    path.write_bytes(with_header(small[1], lambda header: header["learned"].update(deep_=deep)))
    for read in (persistence.read, persistence.describe):
        with pytest.raises(FileError, match="levels"):
            read(path)


@pytest.mark.parametrize("index", ["kdtree", "flat", "ivf"])
def test_ruined_arrays_do_no_harm_even_unverified(data, tmp_path, index):
    """verify=False cannot notice a changed number, but no number may send compiled code outside its arrays."""
    X, y, X_star = data
    path, rng = tmp_path / "model.gpnn", np.random.default_rng(3)
    GPnnRegressor(**GIVEN, index=index, calibration_size=200).fit(X[:600], y[:600]).save(path)
    content = path.read_bytes()
    table = json.loads(header_of(content))["arrays"]
    begin = len(content) - len(arrays_of(content))
    loaded = 0
    for _ in range(10):
        for entry in table.values():
            length = np.dtype(entry["dtype"]).itemsize * int(np.prod(entry["shape"]))
            ruined = np.frombuffer(content, np.uint8).copy()
            section = ruined[begin + entry["offset"] :][:length]
            some = rng.random(length) < 10.0 ** -rng.integers(4)
            section[some] = rng.integers(256, size=length)[some] if rng.random() < 0.5 else rng.choice([0, 127, 255])
            path.write_bytes(ruined.tobytes())
            loaded += survives(path, X_star[:3], verify=False)
            if (ruined != np.frombuffer(content, np.uint8)).any():
                with pytest.raises(FileError, match="damaged"):
                    persistence.read(path)
    assert loaded > 50


def test_children_that_are_not_there_are_not_visited(small, data, tmp_path):
    """Whatever the boxes of a kd-tree say: the root has 2, 4 or 8 children, and the others' numbers lead nowhere."""
    content = bytearray(small[1])
    entry = json.loads(header_of(small[1]))["arrays"]["index_._boxes"]
    begin = len(content) - len(arrays_of(small[1])) + entry["offset"]
    boxes = np.frombuffer(content, np.float32, np.prod(entry["shape"]), begin).reshape(entry["shape"])
    missing = np.isinf(boxes[0, 0, 0])
    assert 0 < missing.sum() < 16
    boxes[0, :, :, missing] = 0.0
    (tmp_path / "model.gpnn").write_bytes(content)
    assert_same(small[0], persistence.read(tmp_path / "model.gpnn", verify=False).regressor, data[2])


# --- other versions of the package ------------------------------------------------------------------------------------


def test_a_field_that_an_older_package_did_not_know_has_its_default(small, data, tmp_path):
    path = tmp_path / "model.gpnn"
    assert small[0].index_.slack == KDTree().slack
    path.write_bytes(with_header(small[1], lambda header: header["learned"]["index_"]["value"].pop("slack")))
    assert_same(small[0], GPnnRegressor.load(path), data[2])


def test_a_field_that_only_a_newer_package_knows_is_an_error(small, tmp_path):
    path = tmp_path / "model.gpnn"

    def change(header):
        header["gpnn"] = "9.9"
        header["learned"]["shape_"]["value"]["skewness"] = 0.3

    path.write_bytes(with_header(small[1], change))
    with pytest.raises(FileError, match=r"Shape has no skewness.*'9\.9'"):
        GPnnRegressor.load(path)


def test_no_loaded_file_stays_open(small, tmp_path):
    (tmp_path / "model.gpnn").write_bytes(small[1])
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to see what is open")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    models = [GPnnRegressor.load(tmp_path / "model.gpnn") for _ in range(5)]
    del models
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_ranks_whose_knots_are_out_of_order_are_refused(data, tmp_path):
    X, y = data[:2]
    model = GPnnRegressor(
        whitening="ranks",
        params=Hyperparameters(1.0, 0.9, 0.1),
        kernel="exponential",
        n_neighbors=8,
        calibration_size=0,
    ).fit(X, y)
    ranks = model.whitener_.ranks
    model.whitener_ = replace(model.whitener_, ranks=replace(ranks, knots=ranks.knots[:, ::-1].copy()))
    with pytest.raises(InvalidInputError, match="knots"):  # as on reading: both look at the same sizes and orders
        model.save(tmp_path / "model.gpnn")
