"""Training of the variational baselines, by GPyTorch. Needs the extra `gpnn[baselines]`; only `fit` imports it.

Arrays go in, arrays come out: no torch object outlives a call, and torch's random state is left as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.utils.nearest_neighbors import NNUtil
from linear_operator.operators import DiagLinearOperator
from linear_operator.utils.errors import NanError, NotPSDError

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Hyperparameters
from gpnn.engines.parallel import progress_bar

KERNELS = {
    "rbf": gpytorch.kernels.RBFKernel,
    "exponential": lambda: gpytorch.kernels.MaternKernel(nu=0.5),
    "matern32": lambda: gpytorch.kernels.MaternKernel(nu=1.5),
    "matern52": lambda: gpytorch.kernels.MaternKernel(nu=2.5),
}
_DISTANCES = 2**24  # held at a time while neighbours are searched
_START = 0.1  # first standard deviation of VNNGP's q(u)


class Trained(NamedTuple):
    """q(u) = N(mean, root·rootᵀ) at the inducing `points`; a diagonal root is a vector."""

    params: Hyperparameters
    points: Array
    mean: Array
    root: Array
    elbo: float
    """Bound on the log likelihood of a row, mean over the last epoch."""
    device: str


def train_svgp(model, rows: Array, targets: Array, n_inducing: int, jitter: float, seed: int) -> Trained:
    """Inducing values whitened by the Cholesky factor of K_ZZ, their q(u) with a full covariance; in float32."""
    device = _device(model.device)
    X, y = (torch.tensor(part, dtype=torch.float32, device=device) for part in (rows, targets))
    inducing = X[:n_inducing].clone()  # the rows are in random order
    q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
    with _seeded(seed, device):
        gp = _GP(
            model.kernel,
            lambda gp: gpytorch.variational.VariationalStrategy(gp, inducing, q, jitter_val=jitter),
        ).to(X)

        def epoch() -> Iterator[tuple[MultivariateNormal, torch.Tensor]]:
            for batch in torch.randperm(len(X), device=device).split(model.batch_size):
                yield gp(X[batch]), y[batch]

        elbo = _maximise_bound(gp, epoch, model, len(X), steps=-(-len(X) // model.batch_size))
    points = gp.variational_strategy.inducing_points
    return _trained(gp, jitter, points, q.variational_mean, q.chol_variational_covar.tril(), elbo)


def train_vnngp(model, rows: Array, targets: Array, n_neighbors: int, jitter: float, seed: int) -> Trained:
    """Every row an inducing point, their q(u) with a diagonal covariance. In float64: K is nearly singular."""
    device = _device(model.device)
    X, y = (torch.tensor(part, dtype=torch.float64, device=device) for part in (rows, targets))
    batch_size = min(model.batch_size, len(X))
    q = gpytorch.variational.MeanFieldVariationalDistribution(len(X))
    with _seeded(seed, device):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)  # GPyTorch would like faiss, which nothing here uses
            gp = _GP(
                model.kernel,
                lambda gp: _NearestRows(gp, X, q, n_neighbors, batch_size, jitter_val=jitter),
            ).to(X)
        strategy = gp.variational_strategy
        # GPyTorch begins at q(u) = N(0, 0.01²), from where the noise soon explains everything; begin at the targets.
        q.initialize_variational_distribution(MultivariateNormal(y, DiagLinearOperator(torch.full_like(y, _START**2))))
        strategy.variational_params_initialized.fill_(1)
        steps = strategy._total_training_batches

        def epoch() -> Iterator[tuple[MultivariateNormal, torch.Tensor]]:
            for _ in range(steps):
                law = gp(None)  # of the strategy's next minibatch
                yield law, y[strategy.current_training_indices]

        elbo = _maximise_bound(gp, epoch, model, len(X), steps)
    return _trained(gp, jitter, X, q.variational_mean, q.variational_stddev, elbo)


class _GP(gpytorch.models.ApproximateGP):
    """A zero-mean GP with one lengthscale and its Gaussian noise; the strategy says how it is approximated."""

    def __init__(self, kernel: str, strategy: Callable):
        super().__init__(strategy(self))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(KERNELS[kernel]())
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class _NearestRows(gpytorch.variational.NNVariationalStrategy):
    """GPyTorch's strategy; its neighbours found in blocks, instead of by one new tree per row."""

    def _compute_nn(self):
        self.nn_util = NNUtil(self.k, dim=self.D, preferred_nnlib="sklearn", device=self.inducing_points.device)
        self.nn_util.set_nn_idx(self.inducing_points.float())
        self.nn_xinduce_idx = earlier_neighbors(self.inducing_points, self.k)
        return self


def earlier_neighbors(X: torch.Tensor, k: int) -> torch.Tensor:
    """(n − k, k): for each row from number k on, its k nearest among the rows before it, nearest first."""
    n, found = len(X), []
    numbers = torch.arange(n, device=X.device)
    for rows in numbers[k:].split(max(1, _DISTANCES // n)):
        distances = torch.cdist(X[rows], X[: rows[-1]])
        distances.masked_fill_(numbers[: rows[-1]] >= rows[:, None], torch.inf)
        found.append(distances.topk(k, largest=False).indices)
    return torch.cat(found)


def _maximise_bound(gp: _GP, epoch: Callable[[], Iterator], model, n: int, steps: int) -> float:
    """Adam on minus the evidence lower bound per row, minibatch by minibatch; the bound's mean over the last epoch."""
    gp.train()
    bound = gpytorch.mlls.VariationalELBO(gp.likelihood, gp, num_data=n)
    optimizer = torch.optim.Adam(gp.parameters(), lr=model.learning_rate)
    with progress_bar(model.n_epochs * steps, "train" if model.verbose else None) as bar, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Negative variance")  # of f at an inducing point, by rounding; noise is added
        for _ in range(model.n_epochs):
            total = torch.zeros((), device=next(gp.parameters()).device)
            try:
                for law, targets in epoch():
                    optimizer.zero_grad()
                    loss = -bound(law, targets)
                    loss.backward()
                    optimizer.step()
                    total -= loss.detach()
                    bar.update()
            except (NanError, NotPSDError, torch.linalg.LinAlgError) as error:
                raise _diverged(model) from error
            elbo = total.item() / steps
            if elbo != elbo:
                raise _diverged(model)
            bar.set_postfix(elbo=f"{elbo:.3f}")
    return elbo


def _diverged(model) -> InvalidInputError:
    return InvalidInputError(
        f"Training diverged: the bound is no longer a number with learning_rate = {model.learning_rate}. "
        f"Try a smaller one, such as {model.learning_rate / 10:g}."
    )


def _device(name: str) -> torch.device:
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise InvalidInputError(
            "device = 'cuda', but PyTorch sees no CUDA device. Check that torch.cuda.is_available() says True in this "
            "environment, or use device='auto', which takes the CPU where there is no other."
        )
    return torch.device("cuda" if available and name != "cpu" else "cpu")


@contextmanager
def _seeded(seed: int, device: torch.device):
    """Torch's random numbers from `seed`, and afterwards as if nothing had been drawn."""
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if on_cuda else []):
        torch.default_generator.manual_seed(seed)
        if on_cuda:
            torch.cuda.manual_seed(seed)
        yield


def _trained(gp: _GP, jitter: float, points, mean, root, elbo: float) -> Trained:
    params = Hyperparameters(
        gp.covar_module.base_kernel.lengthscale.item(),
        gp.covar_module.outputscale.item(),
        gp.likelihood.noise.item() + jitter,  # to the model, jitter on the diagonal of K is noise
    )
    points, mean, root = (tensor.detach().cpu().double().numpy() for tensor in (points, mean, root))
    return Trained(params, points, mean, root, elbo, str(gp.likelihood.noise.device))
