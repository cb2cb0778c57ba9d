"""MuyGPyS: nearest-neighbour kriging whose parameters are chosen by leave-one-out likelihood on a batch of rows."""

from importlib.metadata import version

import numpy as np
from MuyGPyS.gp import MuyGPS
from MuyGPyS.gp.deformation import Isotropy, l2
from MuyGPyS.gp.hyperparameter import AnalyticScale, Parameter
from MuyGPyS.gp.kernels import Matern
from MuyGPyS.gp.noise import HomoscedasticNoise
from MuyGPyS.neighbors import NN_Wrapper
from MuyGPyS.optimize import Bayes_optimize
from MuyGPyS.optimize.batch import sample_batch
from MuyGPyS.optimize.loss import lool_fn

from gpnn.engines.parallel import blocks
from gpnn.stages.whitening import Whitener

NEIGHBORS, BATCH, BLOCK = 100, 500, 500


class MuyGPs:
    """Exponential kernel, 100 neighbours, on rows whitened as the paper does; lengthscale and noise from 500 rows.

    Held against its documentation: batches of 500 to 2000 rows are what it finds reasonable, its tutorial has
    30 neighbours, and leave-one-out likelihood, Bayesian optimisation and the analytic scale are among its ways. It can
    also learn a lengthscale for each column (its anisotropic tutorial), which this does not ask for.
    """

    version = version("muygpys")

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X, y):
        self.whitener = Whitener.fit(X, y)
        self.X, self.y = self.whitener.transform(X).astype(float), self.whitener.transform_y(y)
        self.search = NN_Wrapper(self.X, NEIGHBORS, nn_method="exact", algorithm="auto")
        start = MuyGPS(
            kernel=Matern(
                smoothness=Parameter(0.5),
                deformation=Isotropy(l2, length_scale=Parameter(1.0, (0.01, 20.0))),
            ),
            noise=HomoscedasticNoise(0.1, (1e-3, 1.0)),
            scale=AnalyticScale(),
        )
        np.random.seed(self.seed)  # noqa: NPY002 - the batch is drawn from numpy's global state
        rows, neighbors = sample_batch(self.search, min(BATCH, len(X)), len(X))
        crosswise, pairwise, targets, neighbor_targets = start.make_train_tensors(rows, neighbors, self.X, self.y)
        model = Bayes_optimize(
            start, targets, neighbor_targets, crosswise, pairwise,
            loss_fn=lool_fn, random_state=self.seed, init_points=10, n_iter=30,
        )  # fmt: skip
        self.model = model.optimize_scale(pairwise, neighbor_targets)
        return self

    def predict(self, X):
        mean, variance = np.empty((2, len(X)))
        for part in blocks(len(X), BLOCK):
            mean[part], variance[part] = self._predict(self.whitener.transform(X[part]).astype(float))
        return self.whitener.y_mean + self.whitener.y_std * mean, self.whitener.y_std * np.sqrt(variance)

    def _predict(self, X_star):
        neighbors, _ = self.search.get_nns(X_star)
        crosswise, pairwise, targets = self.model.make_predict_tensors(
            np.arange(len(X_star)), neighbors, X_star, self.X, self.y
        )
        K, k_star = self.model.kernel(pairwise), self.model.kernel(crosswise)
        noise = float(self.model.scale()) * float(self.model.noise())  # its variance is that of f*
        mean = self.model.posterior_mean(K, k_star, targets)
        return np.ravel(mean), np.ravel(self.model.posterior_variance(K, k_star)) + noise
