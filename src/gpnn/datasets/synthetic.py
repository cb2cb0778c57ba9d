"""Functions with known noise, so that the limits of Theorem 1 can be seen."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.extras import import_pandas
from gpnn.engines.parallel import blocks, progress_bar
from gpnn.files.whole import whole_or_nothing
from gpnn.theory.simulation.laws import NOISES

# The published coefficients: f(x) = a₁ᵀx + a₂ᵀsin x + a₃ᵀcos x + xᵀMx (Oakley and O'Hagan 2004).
_A_ROWS = """
    0.0118 0.0456 0.2297 0.0393 0.1177 0.3865 0.3897 0.6061 0.6159 0.4005 1.0741 1.1474 0.7880 1.1242 1.1982
    0.4341 0.0887 0.0512 0.3233 0.1489 1.0360 0.9892 0.9672 0.8977 0.8083 1.8426 2.4712 2.3946 2.0045 2.2621
    0.1044 0.2057 0.0774 0.2730 0.1253 0.7526 0.8570 1.0331 0.8388 0.7970 2.2145 2.0382 2.4004 2.0541 1.9845
"""
_A1, _A2, _A3 = np.array(_A_ROWS.split(), dtype=float).reshape(3, 15)
_M_ROWS = """
    -0.022482886 -0.18501666 0.13418263 0.36867264 0.17172785 0.13651143 -0.44034404 -0.081422854 0.71321025
    -0.44361072 0.50383394 -0.024101458 -0.045939684 0.21666181 0.055887417 0.2565963 0.053792287 0.25800381
    0.23795905 -0.59125756 -0.081627077 -0.28749073 0.41581639 0.49752241 0.083893165 -0.11056683 0.033222351
    -0.13979497 -0.031020556 -0.22318721 -0.055999811 0.19542252 0.095529005 -0.2862653 -0.14441303 0.22369356
    0.14527412 0.28998481 0.2310501 -0.31929879 -0.29039128 -0.20956898 0.43139047 0.024429152 0.044904409
    0.66448103 0.43069872 0.29924645 -0.16202441 -0.31479544 -0.39026802 0.17679822 0.057952663 0.17230342
    0.13466011 -0.3527524 0.25146896 -0.018810529 0.36482392 -0.32504618 -0.121278 0.12463327 0.10656519 0.046562296
    -0.21678617 0.19492172 -0.065521126 0.024404669 -0.09682886 0.19366196 0.33354757 0.31295994 -0.083615456
    -0.25342082 0.37325717 -0.2837623 -0.32820154 -0.10496068 -0.22073452 -0.13708154 -0.14426375 -0.11503319
    0.22424151 -0.030395022 -0.51505615 0.017254978 0.038957118 0.36069184 0.30902452 0.050030193 -0.077875893
    0.003745656 0.88685604 -0.26590028 -0.079325357 -0.042734919 -0.18653782 -0.35604718 -0.17497421 0.088699956
    0.40025886 -0.055979693 0.13724479 0.21485613 -0.011265799 -0.09229473 0.59209563 0.031338285 -0.033080861
    -0.24308858 -0.099798547 0.034460195 0.095119813 -0.3380162 0.0063860024 -0.61207299 0.081325416 0.88683114
    0.14254905 0.14776204 -0.13189434 0.52878496 0.12652391 0.045113625 0.58373514 0.37291503 0.11395325 -0.29479222
    -0.57014085 0.46291592 -0.094050179 0.13959097 -0.38607402 -0.4489706 -0.14602419 0.058107658 -0.32289338
    0.093139162 0.072427234 -0.56919401 0.52554237 0.23656926 -0.011782016 0.071820601 0.078277291 -0.13355752
    0.22722721 0.14369455 -0.45198935 -0.55574794 0.66145875 0.34633299 0.14098019 0.51882591 -0.28019898 -0.1603226
    -0.068413337 -0.20428242 0.069672173 0.23112577 -0.044368579 -0.16455425 0.21620977 0.0042702105 -0.087399014
    0.31599556 -0.027551859 0.13434254 0.13497371 0.05400568 -0.17374789 0.17525393 0.060258929 -0.17914162
    -0.31056619 -0.25358691 0.025847535 -0.43006001 -0.62266361 -0.033996882 -0.29038151 0.03410127 0.034903413
    -0.12121764 0.026030714 -0.33546274 -0.41424111 0.05324838 -0.27099455 -0.026251302 0.41024137 0.26636349
    0.15582891 -0.18666254 0.019895831 -0.24388652 -0.44098852 0.012618825 0.24945112 0.071101888 0.24623792
    0.17484502 0.0085286769 0.2514707 -0.14659862 -0.08462515 0.36931333 -0.29955293 0.1104436 -0.75690139
    0.041494323 -0.25980564 0.46402128 -0.36112127 -0.94980789 -0.16504063 0.0030943325 0.052792942 0.22523648
    0.38390366 0.45562427 -0.18631744 0.0082333995 0.16670803 0.16045688
"""
_M = np.array(_M_ROWS.split(), dtype=float).reshape(15, 15)

_BLOCK = 65_536
NoiseLaw = str | Callable[[np.random.Generator, int], NDArray]
"""A name, or a function of a generator and a size that draws so many values of mean 0 and variance 1."""


def oakley_ohagan_function(X: NDArray) -> NDArray:
    """f at each row of X (n, 15): five columns matter much, five little, five hardly at all."""
    X = np.asarray(X, dtype=float)
    return X @ _A1 + np.sin(X) @ _A2 + np.cos(X) @ _A3 + np.einsum("ni,ni->n", X @ _M, X)


def oakley_ohagan(
    n: int, noise_variance: float, noise: NoiseLaw = "laplace", random_state: int | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """n rows of 15 standard normal inputs (float32), and f plus noise of the given variance.

    `noise` is "laplace", "gaussian", "student_t" (five degrees of freedom), or a function (rng, size) of your own
    whose values have mean 0 and variance 1. Made in blocks: beside the result, memory does not grow with n, and the
    first rows do not depend on n.
    """
    draw = _noise_law(n, noise_variance, noise)
    X, y = np.empty((n, len(_A1)), np.float32), np.empty(n)
    for block, X_block, y_block in _draw_blocks(n, noise_variance, draw, random_state):
        X[block], y[block] = X_block, y_block
    return X, y


def oakley_ohagan_parquet(
    path: str | os.PathLike,
    n: int,
    noise_variance: float,
    noise: NoiseLaw = "laplace",
    random_state: int | None = None,
    *,
    verbose: int = 0,
) -> Path:
    """The same numbers as `oakley_ohagan`, written block by block as Parquet: columns x1 … x15 and y.

    Memory does not grow with n; 68 bytes a row on disk. The file appears under its name only when it is whole.
    """
    draw = _noise_law(n, noise_variance, noise)
    import_pandas()
    import pyarrow as pa
    from pyarrow import parquet

    path = Path(path)
    inputs = [f"x{number}" for number in range(1, len(_A1) + 1)]
    schema = pa.schema([(name, pa.float32()) for name in inputs] + [("y", pa.float64())])
    bar = progress_bar(n, path.name if verbose else None)
    with (
        bar,
        whole_or_nothing(path) as unfinished,
        # Random numbers do not compress and do not repeat.
        parquet.ParquetWriter(unfinished, schema, compression="none", use_dictionary=False) as writer,
    ):
        for block, X, y in _draw_blocks(n, noise_variance, draw, random_state):
            writer.write_table(pa.table([*map(pa.array, np.ascontiguousarray(X.T)), pa.array(y)], schema=schema))
            bar.update(block.stop - block.start)
    return path


def _noise_law(n: int, noise_variance: float, noise: NoiseLaw) -> Callable[[np.random.Generator, int], NDArray]:
    if not (callable(noise) or noise in NOISES):
        raise InvalidInputError(
            f"noise = {noise!r} is unknown. Choose one of: {', '.join(NOISES)}; or give a function (rng, size) whose "
            "values have variance 1."
        )
    if n < 1 or not 0 <= noise_variance < np.inf:
        raise InvalidInputError(f"n = {n} must be at least 1 and noise_variance = {noise_variance} finite, at least 0.")
    return noise if callable(noise) else NOISES[noise]


def _draw_blocks(n: int, noise_variance: float, draw, random_state) -> Iterator[tuple[slice, NDArray, NDArray]]:
    """Rows and targets, block by block. Whole blocks are drawn, so that rows do not depend on how many follow."""
    rng = np.random.default_rng(random_state)
    for block in blocks(n, _BLOCK):
        rows = block.stop - block.start
        X = rng.standard_normal((_BLOCK, len(_A1)), dtype=np.float32)[:rows]
        values = np.asarray(draw(rng, _BLOCK), dtype=float)
        if values.shape != (_BLOCK,) or not np.isfinite(values).all():
            raise InvalidInputError(
                f"noise: asked for {_BLOCK} finite values, got an array of shape {values.shape} with "
                f"{int((~np.isfinite(values)).sum())} that are not finite. It is called as noise(rng, size)."
            )
        yield block, X, oakley_ohagan_function(X) + np.sqrt(noise_variance) * values[:rows]
