"""Conjugate nearest-neighbour Gaussian process (Finley et al. 2019, Algorithm 5): no MCMC, Student-t predictions.

y ~ N(Hβ, σ²M̃), where M̃ is the nearest-neighbour approximation of M = C(φ) + αI: in a random order, each row is given
its m nearest among those before it, instead of all of them. φ and α come from a grid by cross-validation; β and σ² have
conjugate priors and are integrated out exactly. In our notation φ = 1/l, σ² = σ_f² and α = σ_ξ²/σ_f², so that a pair
(φ, α) is `Hyperparameters(1/φ, 1, α)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from gpnn.baselines._base import WhitenedRegressor
from gpnn.common import metrics
from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import Kernel, get_kernel, squared_distances
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines.cpu.neighbors import NeighborIndex, make_index
from gpnn.engines.parallel import for_each_block

_BETA_VARIANCE = 1e6  # V_β = 1e6·I: flat beside any data, in whitened units
_LEAST_RATIO = 1e-10  # of α, so that M is regular where rows repeat
_NUMBERS = 2**14  # that the matrices M_N of a block of rows may hold, so that they stay in the cache
_PARTS = 32  # sums of products that are kept until they are added up


class NormalInverseGamma(NamedTuple):
    """What is known of (β, σ²): σ² ~ IG(a, b), β | σ² ~ N(g, σ²V)."""

    a: float
    b: float
    g: Array
    V: Array

    @classmethod
    def given(cls, gram: Array, n: int, prior: Sequence[float]) -> NormalInverseGamma:
        """From [y H]ᵀM̃⁻¹[y H] of n rows, with σ² ~ IG(prior) and β | σ² ~ N(0, σ²V_β)."""
        B = gram[1:, 1:] + np.eye(len(gram) - 1) / _BETA_VARIANCE
        V = np.linalg.inv(B)
        g = V @ gram[1:, 0]
        return cls(prior[0] + n / 2, prior[1] + 0.5 * float(gram[0, 0] - g @ B @ g), g, V)

    @property
    def variance(self) -> float:
        """The mean of σ²."""
        return self.b / (self.a - 1)


@dataclass(frozen=True)
class NNGP:
    """The process given rows, for each of several pairs (φ, α)."""

    index: NeighborIndex
    targets: Array
    """[y H] (n, 1 + p), in the order of the index."""
    m: int
    kernel: Kernel
    pairs: Sequence[Hyperparameters]
    posteriors: Sequence[NormalInverseGamma]

    def laws(self, X_star: Array, H_star: Array) -> Iterator[Prediction]:
        """The law of y* at each query, Student-t, for one pair after the other. It runs in the calling thread."""
        near = self.index.query(X_star, self.m).indices
        N, targets = self.index.points(near), self.targets[near]
        for pair, posterior in zip(self.pairs, self.posteriors, strict=True):
            w, v = kriging_weights(X_star, N, self.kernel, pair)
            explained = np.einsum("qm,qmp->qp", w, targets)
            u = H_star - explained[:, 1:]
            v = v + np.einsum("qi,ij,qj->q", u, posterior.V, u)
            yield Prediction(explained[:, 0] + u @ posterior.g, posterior.variance * v, 2 * posterior.a)


def kriging_weights(x: Array, N: Array, kernel: Kernel, pair: Hyperparameters) -> tuple[Array, Array]:
    """w = M_N⁻¹z and v = 1 + α − w·z for rows x (q, d) and their neighbours N (q, m, d).

    Unlike the means that solvers give, w also serves the columns of H.
    """
    scaled = (N - x[:, None]) / np.asarray(pair.lengthscale, dtype=float)
    inner = scaled @ scaled.transpose(0, 2, 1)
    r2 = np.einsum("qii->qi", inner)  # from x, which all differences are taken from: near rows cancel little
    z = kernel.correlation(r2)
    M = kernel.correlation(np.maximum(r2[:, :, None] + r2[:, None, :] - 2 * inner, 0))
    np.einsum("qii->qi", M)[...] = 1 + pair.noise_variance
    w = np.linalg.solve(M, z[..., None])[..., 0]
    v = 1 + pair.noise_variance - (w * z).sum(axis=1)
    return w, np.maximum(v, pair.noise_variance)  # which it is never below, but for rounding


def previous_neighbors(
    X: Array, m: int, index: str | NeighborIndex, n_jobs: int | None, progress: str | None = None
) -> NDArray[np.int64]:
    """For each row i ≥ m, its m nearest among rows 0 … i − 1: (n − m, m). Rows come in random order.

    Of the first N rows, those in the second half have at least half of the others before them: about one in two of
    their neighbours counts, and 3m of them nearly always hold m that do (if not, more are asked for). N doubles until
    it is n, so every row is asked for once and indexed about twice.
    """
    n, d = X.shape
    found = np.empty((n - m, m), np.int64)

    def find(done: int, N: int) -> None:
        """Those of rows done … N − 1."""
        ask_for = min(3 * m + 1, N)
        built = make_index(index, N, d, ask_for).build(X[:N].copy(), ask_for, X[:N][-1000:], n_jobs, 0, progress)

        def search(part: slice) -> None:
            rows, k, query = np.arange(done + part.start, done + part.stop), ask_for, built.query
            while len(rows):
                near = built.order[query(X[rows], k).indices]
                before = near < rows[:, None]
                enough = before.sum(axis=1) >= m
                first = np.argsort(~before[enough], axis=1, kind="stable")[:, :m]
                found[rows[enough] - m] = np.take_along_axis(near[enough], first, axis=1)
                rows, k, query = rows[~enough], min(2 * k, N), built.query if built.exact else built.exact_query

        for_each_block(search, N - done, 256, n_jobs, progress)

    done = m
    while done < n:
        N = min(2 * done, n)
        find(done, N)
        done = N
    return found


def condition(
    X: Array, targets: Array, m: int, kernel: Kernel, pairs: Sequence[Hyperparameters], prior: Sequence[float],
    index: str | NeighborIndex, n_jobs: int | None, progress: str | None = None,
) -> NNGP:  # fmt: skip
    """The process given rows X (n, d), [y H] (n, 1 + p), in random order.

    M̃⁻¹ = (I − A)ᵀD⁻¹(I − A) has row i's weights in A and its variance in D; the first m rows are given all before them,
    which makes M̃ = M there.
    """
    m = min(m, len(X))
    previous = previous_neighbors(X, m, index, n_jobs, progress)
    p = targets.shape[1]
    size, step = max(256, -(-len(previous) // _PARTS)), rows_per_block(m, max(X.shape[1], p))
    grams = np.zeros((1 + _PARTS, len(pairs), p, p))  # added up in a fixed order, whatever the threads
    for g, pair in enumerate(pairs):
        first = X[:m] / np.asarray(pair.lengthscale, dtype=float)
        M = kernel.correlation(squared_distances(first, first)) + pair.noise_variance * np.eye(m)
        E = solve_triangular(cholesky(M, lower=True), targets[:m], lower=True)
        grams[0, g] = E.T @ E

    def add(part: slice) -> None:
        for begin in range(m + part.start, m + part.stop, step):
            rows = slice(begin, min(begin + step, m + part.stop))
            near = previous[begin - m : rows.stop - m]
            N, targets_N = X[near], targets[near]
            for g, pair in enumerate(pairs):
                w, v = kriging_weights(X[rows], N, kernel, pair)
                E = (targets[rows] - np.einsum("qm,qmp->qp", w, targets_N)) / np.sqrt(v)[:, None]  # D^(−½)(I − A)[y H]
                grams[1 + part.start // size, g] += E.T @ E

    for_each_block(add, len(previous), size, n_jobs, progress)
    posteriors = [NormalInverseGamma.given(gram, len(X), prior) for gram in grams.sum(axis=0)]
    built = make_index(index, len(X), X.shape[1], m).build(X.copy(), m, X[-1000:], n_jobs, 0, progress)
    return NNGP(built, targets[built.order], m, kernel, pairs, posteriors)


def rows_per_block(m: int, columns: int) -> int:
    return max(1, _NUMBERS // (m * max(m, columns)))


class ConjugateNNGP(WhitenedRegressor):
    """Conjugate nearest-neighbour Gaussian process, whose law of y* is Student-t.

    With mean="zero", its means are those of GPnn with the same l, σ_ξ²/σ_f² and m, and its variances those of GPnn
    times a constant.

    Parameters
    ----------
    kernel : "exponential", "rbf", "matern32" or "matern52"
    n_neighbors : m, in training and in prediction
    mean : "zero", or "linear" for β_0 + xᵀβ with a flat normal prior
    inverse_lengthscales, noise_ratios : the grid's values of φ and α, in whitened units
    n_folds : K of the cross-validation
    criterion : "crps" or "rmse", what the cross-validation minimises
    variance_prior : (a_σ, b_σ) of the inverse-gamma prior of σ²
    index : how neighbours are found, as in `GPnnRegressor`
    whitening, n_jobs, random_state, verbose : as in `GPnnRegressor`
    params : Hyperparameters whose l and σ_ξ²/σ_f² are used instead of the grid's

    Attributes
    ----------
    params_ : Hyperparameters in whitened units, with the mean of σ² as σ_f²: GPnn with these has the same variances
    process_ : the `NNGP` of the training rows, with a*, b*, g and V among its `posteriors`
    cv_scores_ : the criterion for each φ (down) and α (across), in whitened units; None where params were given
    """

    _means = ("zero", "linear")

    def __init__(
        self,
        *,
        kernel: str = "exponential",
        n_neighbors: int = 15,
        mean: str = "zero",
        inverse_lengthscales: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0),
        noise_ratios: Sequence[float] = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0),
        n_folds: int = 5,
        criterion: str = "crps",
        variance_prior: tuple[float, float] = (2.0, 1.0),
        index: str | NeighborIndex = "auto",
        whitening: str = "full",
        params: Hyperparameters | None = None,
        n_jobs: int | None = None,
        random_state=None,
        verbose: int = 0,
    ):
        self.kernel = kernel
        self.n_neighbors = n_neighbors
        self.mean = mean
        self.inverse_lengthscales = inverse_lengthscales
        self.noise_ratios = noise_ratios
        self.n_folds = n_folds
        self.criterion = criterion
        self.variance_prior = variance_prior
        self.index = index
        self.whitening = whitening
        self.params = params
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, X: Array, y: Array, rng: np.random.Generator) -> Hyperparameters:
        _check_positive("inverse_lengthscales", self.inverse_lengthscales)
        _check_positive("noise_ratios", self.noise_ratios)
        _check_positive("variance_prior", self.variance_prior, count=2)
        shuffled = rng.permutation(len(X))
        X, y = X[shuffled], y[shuffled]
        self.cv_scores_: Array | None = None
        if self.params is None:
            pair = self._cross_validate(X, y)
        else:
            ratio = self.params.noise_variance / self.params.kernel_variance
            pair = Hyperparameters(self.params.lengthscale, 1.0, max(ratio, _LEAST_RATIO))
        self.process_ = self._condition(X, y, [pair], "condition")
        return pair.scaled(self.process_.posteriors[0].variance)

    def _cross_validate(self, X: Array, y: Array) -> Hyperparameters:
        """The pair (φ, α) with the least mean criterion over rows held out, one fold after another."""
        table = product(self.inverse_lengthscales, self.noise_ratios)
        pairs = [Hyperparameters(1 / phi, 1.0, alpha) for phi, alpha in table]
        fold = np.arange(len(X)) % min(self.n_folds, len(X))  # rows are in random order already
        total = np.zeros(len(pairs))
        for k in range(fold.max() + 1):
            process = self._condition(X[fold != k], y[fold != k], pairs, f"fold {k + 1}")
            total += self._sum_of_scores(process, X[fold == k], y[fold == k])
        scores = total / len(X) if self.criterion == "crps" else np.sqrt(total / len(X))
        self.cv_scores_ = scores.reshape(len(self.inverse_lengthscales), -1)
        return pairs[int(np.argmin(scores))]

    def _sum_of_scores(self, process: NNGP, X: Array, y: Array) -> Array:
        """The criterion (squared, for "rmse") summed over rows held out, for each pair."""
        criterion = metrics.crps if self.criterion == "crps" else metrics.mse
        size = rows_per_block(process.m, X.shape[1])
        sums = np.zeros((-(-len(X) // size), len(process.pairs)))

        def add(part: slice) -> None:
            for g, law in enumerate(process.laws(X[part], self._design(X[part]))):
                sums[part.start // size, g] = criterion(y[part], law) * len(law)

        for_each_block(add, len(X), size, self.n_jobs, self._bar("score"))
        return sums.sum(axis=0)

    def _condition(self, X: Array, y: Array, pairs: Sequence[Hyperparameters], name: str) -> NNGP:
        targets = np.concatenate([y[:, None], self._design(X)], axis=1)
        return condition(X, targets, self.n_neighbors, get_kernel(self.kernel), pairs, self.variance_prior,
                         self.index, self.n_jobs, self._bar(name))  # fmt: skip

    def _design(self, X: Array) -> Array:
        """H: no columns for a zero mean, 1 and those of X for a linear one."""
        columns = np.concatenate([np.ones((len(X), 1)), X], axis=1)
        return columns if self.mean == "linear" else columns[:, :0]

    def _predict_whitened(self, X_star: Array) -> tuple[Prediction, float]:
        (law,) = self.process_.laws(X_star, self._design(X_star))
        return law, 0.0

    def _degrees_of_freedom(self) -> float | None:
        return 2 * self.process_.posteriors[0].a

    def _most_queries(self) -> int:
        return rows_per_block(self.process_.m, self.n_features_in_)


def _check_positive(name: str, values, count: int | None = None) -> None:
    numbers = np.asarray(values, dtype=float)
    right_count = numbers.ndim == 1 and (len(numbers) == count if count else len(numbers) > 0)
    if not (right_count and (np.isfinite(numbers) & (numbers > 0)).all()):
        raise InvalidInputError(
            f"{name} = {values!r} must be {count or 'one or more'} positive numbers, such as (2.0, 1.0)."
        )
