"""The paper's recipe as its authors ran it, for comparison: scikit-learn's neighbours and GPyTorch's exact GP.

One `kneighbors` call and one small GPyTorch model per prediction; phase 1 by 200 Adam steps at rate 0.1 on a batch of
ten blocks that share their parameters; all in float64.
"""

import gpytorch
import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from gpnn import Hyperparameters

KERNELS = {
    "rbf": gpytorch.kernels.RBFKernel,
    "exponential": lambda: gpytorch.kernels.MaternKernel(nu=0.5),
    "matern32": lambda: gpytorch.kernels.MaternKernel(nu=1.5),
    "matern52": lambda: gpytorch.kernels.MaternKernel(nu=2.5),
}


class _ExactGP(gpytorch.models.ExactGP):
    def __init__(self, X, y, likelihood, kernel):
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(KERNELS[kernel]())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _likelihood():
    return gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-6))


class PaperRecipe:
    def __init__(self, kernel="exponential", n_neighbors=400, n_blocks=10, block_size=300, calibration_size=1000):
        self.kernel, self.n_neighbors = kernel, n_neighbors
        self.n_blocks, self.block_size, self.calibration_size = n_blocks, block_size, calibration_size

    def fit(self, X, y, seed=0):
        torch.set_default_dtype(torch.float64)
        rng = np.random.default_rng(seed)
        rows = rng.permutation(len(X))
        held_out, train = rows[: self.calibration_size], rows[self.calibration_size :]
        self.x_mean, d = X.mean(axis=0), X.shape[1]
        values, vectors = np.linalg.eigh(np.cov(X.T))
        self.x_map = vectors / np.sqrt(values + 1e-5) / np.sqrt(d)
        self.y_mean, self.y_std = y.mean(), y.std()
        Z, z = self.whiten(X), (y - self.y_mean) / self.y_std
        self.params = self._estimate(Z, z, train[: self.n_blocks * self.block_size])
        self.Z, self.z = Z[train], z[train]
        self.neighbors = NearestNeighbors(n_neighbors=self.n_neighbors).fit(self.Z)
        mean, variance = self.predict_whitened(Z[held_out])
        self.alpha = np.mean((z[held_out] - mean) ** 2 / variance)
        self.params = self.params.scaled(self.alpha)
        return self

    def whiten(self, X):
        return (X - self.x_mean) @ self.x_map

    def _estimate(self, Z, z, subset):
        X = torch.tensor(Z[subset].reshape(self.n_blocks, self.block_size, -1))
        y = torch.tensor(z[subset].reshape(self.n_blocks, self.block_size))
        likelihood = _likelihood()
        model = _ExactGP(X, y, likelihood, self.kernel)
        model.train()
        likelihood.train()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(200):
            optimizer.zero_grad()
            loss = -objective(model(X), y).sum()
            loss.backward()
            optimizer.step()
        return Hyperparameters(
            float(model.covar_module.base_kernel.lengthscale),
            float(model.covar_module.outputscale),
            float(likelihood.noise),
        )

    def predict_whitened(self, Z_star):
        mean, variance = np.empty((2, len(Z_star)))
        for i, x in enumerate(Z_star):
            indices = self.neighbors.kneighbors(x[None], return_distance=False)[0]
            mean[i], variance[i] = self.predict_one(x, self.Z[indices], self.z[indices])
        return mean, variance

    def predict_one(self, x, N, y):
        likelihood = _likelihood()
        model = _ExactGP(torch.tensor(N), torch.tensor(y), likelihood, self.kernel)
        model.covar_module.base_kernel.lengthscale = self.params.lengthscale
        model.covar_module.outputscale = self.params.kernel_variance
        likelihood.noise = self.params.noise_variance
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            law = likelihood(model(torch.tensor(x[None])))
            return float(law.mean), float(law.variance)
