"""Products of experts and committee machines: exact Gaussian processes of random parts of the rows, aggregated.

One random partition into experts of equal size, hyperparameters shared and estimated on the block-diagonal likelihood
of the whole training set (Deisenroth & Ng 2015, section 3.1), and five rules that join the experts' laws of f*; the
noise is added to what they agree on. Deisenroth & Ng 2015 give the rules of PoE to rBCM, Liu et al. 2018 that of GRBCM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from gpnn.baselines._base import WhitenedRegressor
from gpnn.baselines.exact import Posterior, with_noise
from gpnn.common.kernels import get_kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.stages.estimation import estimate

# --- aggregation: laws of f* from the experts, one after the other → one law of f* ------------------------------------


def aggregate(
    experts: Iterable[Prediction], weight: Callable[[int, Prediction], Array | float], base: Prediction | None = None
) -> Prediction:
    """All five rules: precisions β_i/σ_i², and where the experts share a `base` law, 1 − Σβ_i of that one's.

        1/σ² = Σ β_i/σ_i² + (1 − Σβ_i)/σ_0²,    μ/σ² = Σ β_i μ_i/σ_i² + (1 − Σβ_i) μ_0/σ_0²

    Sums only, so experts may come and go one at a time. With a base, `weight` never has the sign opposite to that of
    1/σ_i² − 1/σ_0², hence 1/σ² > 0.
    """
    precision = product = total = np.zeros(1)
    for number, law in enumerate(experts):
        beta = weight(number, law)
        precision = precision + beta / law.variance
        product = product + beta * law.mean / law.variance
        total = total + beta
    if base is not None:
        precision = precision + (1 - total) / base.variance
        product = product + (1 - total) * base.mean / base.variance
    return Prediction(product / precision, 1 / precision)


def poe(experts: Iterable[Prediction]) -> Prediction:
    """Product of experts: β_i = 1."""
    return aggregate(experts, lambda i, law: 1.0)


def gpoe(experts: Iterable[Prediction], n_experts: int) -> Prediction:
    """Generalised product of experts: β_i = 1/M, which keeps the prior's variance where there are no data."""
    return aggregate(experts, lambda i, law: 1 / n_experts)


def bcm(experts: Iterable[Prediction], prior: Prediction) -> Prediction:
    """Bayesian committee machine: β_i = 1, the prior counted once."""
    return aggregate(experts, lambda i, law: 1.0, prior)


def rbcm(experts: Iterable[Prediction], prior: Prediction) -> Prediction:
    """Robust BCM: β_i = ½(log σ_**² − log σ_i²), the entropy that the expert's data took away."""
    return aggregate(experts, lambda i, law: 0.5 * np.log(prior.variance / law.variance), prior)


def grbcm(experts: Iterable[Prediction], communication: Prediction) -> Prediction:
    """Generalised robust BCM: the experts have the communication expert's rows too, and its law is their prior.

    β = 1 for the first and ½(log σ_c² − log σ_i²) for the others.
    """
    return aggregate(
        experts, lambda i, law: 0.5 * np.log(communication.variance / law.variance) if i else 1.0, communication
    )


LawGiven = Callable[[Array, Array], Prediction]

# --- estimators -------------------------------------------------------------------------------------------------------


class Experts(WhitenedRegressor):
    """What the five have in common.

    Parameters
    ----------
    expert_size : rows of each expert, as nearly as equal sizes allow
    kernel : "rbf" (the paper's), "exponential", "matern32" or "matern52"
    whitening : "full", "diagonal" or "none", as in `GPnnRegressor`
    params : Hyperparameters in whitened units; given, nothing is estimated
    optimizer : "adam" as in the paper (rate 0.1), or "lbfgs", which converges in a fifth of the evaluations or fewer
    n_steps : steps of the optimiser, each of them over all rows
    n_jobs, random_state, verbose : as in `GPnnRegressor`

    Attributes
    ----------
    params_ : Hyperparameters in whitened units
    n_experts_ : M

    Factors are not kept: M of them would take n·expert_size numbers. Every call of predict makes them again, one expert
    after another for each block of queries, so ask for many rows at once.
    """

    def __init__(
        self,
        *,
        expert_size: int = 625,
        kernel: str = "rbf",
        whitening: str = "full",
        params: Hyperparameters | None = None,
        optimizer: str = "adam",
        n_steps: int = 100,
        n_jobs: int | None = None,
        random_state=None,
        verbose: int = 0,
    ):
        self.expert_size = expert_size
        self.kernel = kernel
        self.whitening = whitening
        self.params = params
        self.optimizer = optimizer
        self.n_steps = n_steps
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, X: Array, y: Array, rng: np.random.Generator) -> Hyperparameters:
        self.n_experts_ = max(1, round(len(X) / self.expert_size))
        shuffled = rng.permutation(len(X))
        self._X, self._y = (np.array_split(rows[shuffled], self.n_experts_) for rows in (X, y))
        if self.params is not None:
            return self.params
        kernel = get_kernel(self.kernel)
        bar = self._bar("train")
        return estimate(self._X, self._y, kernel, self.optimizer, self.n_jobs, bar, n_steps=self.n_steps).params

    def _predict_whitened(self, X_star: Array) -> tuple[Prediction, float]:
        jitters = [0.0]

        def law_given(X: Array, y: Array) -> Prediction:
            posterior = Posterior.of(X, y, get_kernel(self.kernel), self.params_)
            jitters.append(posterior.jitter)
            return posterior.latent(X_star)

        law = self._aggregate(law_given)
        return with_noise(law, self.params_), max(jitters)

    def _aggregate(self, law_given: LawGiven) -> Prediction:
        """The law of f*, where `law_given(X, y)` is that of one expert."""
        raise NotImplementedError

    def _prior(self) -> Prediction:
        return Prediction(np.zeros(1), np.full(1, self.params_.kernel_variance))


class PoE(Experts):
    """Product of experts (Hinton 2002): overconfident, the more so the more there are. Settings as in `Experts`."""

    def _aggregate(self, law_given: LawGiven) -> Prediction:
        return poe(map(law_given, self._X, self._y))


class GPoE(Experts):
    """Generalised product of experts (Cao & Fleet 2014): cautious. Settings as in `Experts`."""

    def _aggregate(self, law_given: LawGiven) -> Prediction:
        return gpoe(map(law_given, self._X, self._y), self.n_experts_)


class BCM(Experts):
    """Bayesian committee machine (Tresp 2000). Settings as in `Experts`."""

    def _aggregate(self, law_given: LawGiven) -> Prediction:
        return bcm(map(law_given, self._X, self._y), self._prior())


class RBCM(Experts):
    """Robust Bayesian committee machine (Deisenroth & Ng 2015). Settings as in `Experts`."""

    def _aggregate(self, law_given: LawGiven) -> Prediction:
        return rbcm(map(law_given, self._X, self._y), self._prior())


class GRBCM(Experts):
    """Generalised robust Bayesian committee machine (Liu et al. 2018). Settings as in `Experts`.

    The first part of the partition is the communication expert, whose rows every other expert has too: systems of twice
    the size, so predictions take about four times as long.
    """

    def _aggregate(self, law_given: LawGiven) -> Prediction:
        (X_c, *X), (y_c, *y) = self._X, self._y
        with_c = (
            law_given(np.concatenate([X_c, X_i]), np.concatenate([y_c, y_i])) for X_i, y_i in zip(X, y, strict=True)
        )
        return grbcm(with_c, law_given(X_c, y_c))
