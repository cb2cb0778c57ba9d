"""Oakley–O'Hagan with any noise, in memory and as Parquet."""

import errno

import numpy as np
import pyarrow.parquet as pq
import pytest

from gpnn.datasets import oakley_ohagan, oakley_ohagan_parquet, synthetic
from gpnn.datasets.synthetic import oakley_ohagan_function
from gpnn.errors import FileError, InvalidInputError


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "student_t"])
def test_noise_laws_have_the_variance_asked_for(noise):
    X, y = oakley_ohagan(300_000, 6.0, noise, random_state=0)
    residual = y - oakley_ohagan_function(X)
    assert residual.mean() == pytest.approx(0, abs=0.03)
    assert residual.var() == pytest.approx(6, rel=0.03)
    tails = np.mean(np.abs(residual) > 4 * np.sqrt(6))  # 6e-5, 3.5e-3 and 3.4e-3 in theory
    assert (tails < 3e-4) == (noise == "gaussian")


def test_any_law_can_be_given():
    def coin(rng, size):
        return rng.choice([-1.0, 1.0], size)

    X, y = oakley_ohagan(1000, 4.0, coin, random_state=0)
    np.testing.assert_allclose(np.abs(y - oakley_ohagan_function(X)), 2, rtol=1e-9)


def test_numbers_are_those_of_the_first_release():
    """Results on record were made with these rows."""
    X, y = oakley_ohagan(70_000, 6.0, "laplace", 3)
    assert (X.dtype, y.dtype) == (np.float32, np.float64)
    rng = np.random.default_rng(3)
    first = rng.standard_normal((65_536, 15), dtype=np.float32)
    noise = rng.laplace(scale=np.sqrt(0.5), size=65_536)
    np.testing.assert_array_equal(X[:65_536], first)
    np.testing.assert_array_equal(y[:65_536], oakley_ohagan_function(first) + np.sqrt(6.0) * noise)


def test_parquet_holds_the_same_numbers(tmp_path, capsys):
    path = oakley_ohagan_parquet(tmp_path / "oakley.parquet", 70_000, 6.0, "student_t", 3, verbose=1)
    X, y = oakley_ohagan(70_000, 6.0, "student_t", 3)
    table = pq.read_table(path)
    assert table.column_names == [*(f"x{k}" for k in range(1, 16)), "y"]
    np.testing.assert_array_equal(np.column_stack([table[name] for name in table.column_names[:-1]]), X)
    np.testing.assert_array_equal(table["y"], y)
    assert pq.ParquetFile(path).num_row_groups == 2  # written block by block
    assert capsys.readouterr().out == ""


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "oakley.parquet"
    path.write_text("old")
    blocks = []

    def full_disk_in_the_second_block(rng, size):
        blocks.append(size)
        if len(blocks) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rng.standard_normal(size)

    with pytest.raises(FileError, match=r"The disk is full.*Nothing that was there before has changed"):
        oakley_ohagan_parquet(path, 70_000, 6.0, full_disk_in_the_second_block)
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["oakley.parquet"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("make", [oakley_ohagan, lambda *args: oakley_ohagan_parquet("never.parquet", *args)])
@pytest.mark.parametrize(
    ("n", "variance", "noise", "message"),
    [
        (10, 1.0, "gausian", "Choose one of: gaussian, laplace, student_t; or give a function"),
        (0, 1.0, "laplace", "n = 0 must be at least 1"),
        (10, -1.0, "laplace", "noise_variance = -1.0"),
        (10, float("nan"), "laplace", "noise_variance = nan"),
    ],
)
def test_bad_settings(make, n, variance, noise, message):
    with pytest.raises(InvalidInputError, match=message):
        make(n, variance, noise)


@pytest.mark.parametrize("law", [lambda rng, size: rng.normal(size=3), lambda rng, size: np.full(size, np.nan)])
def test_a_law_must_give_as_many_finite_values_as_asked_for(law):
    with pytest.raises(InvalidInputError, match=f"asked for {synthetic._BLOCK} finite values"):
        oakley_ohagan(10, 1.0, law)
