"""
What more rows would bring
==========================

A prediction looks at m rows only, so an experiment with n rows needs just those m, drawn from the law that they would
have among n (Algorithm 1 of the paper). That makes n = 10¹² affordable, and shows how fast Theorem 1's limits come.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpnn import Hyperparameters, simulation, theory

true = Hyperparameters(lengthscale=1.0, kernel_variance=0.9, noise_variance=0.1)
sizes = 10 ** np.arange(3, 13, dtype=np.int64)

# %%
# One field, four assumptions: the truth, too short and too long a lengthscale, the wrong kernel. `expect` averages the
# exact expectation given the neighbours, so no targets are drawn and the curves are smooth.
assumptions = {
    "true kernel and parameters": ("rbf", true),
    "l too short by half": ("rbf", Hyperparameters(0.5, 0.9, 0.1)),
    "l four times too long": ("rbf", Hyperparameters(4.0, 0.9, 0.1)),
    "exponential kernel": ("exponential", true),
}
dimensions = (2, 20)
mse = np.empty((len(dimensions), len(assumptions), len(sizes)))
for i, d in enumerate(dimensions):
    for k, n in enumerate(sizes):
        draws = simulation.draw(
            n=int(n), d=d, n_queries=100, n_neighbors=100, kernel="rbf", params=true, random_state=int(k)
        )
        for j, (kernel, assumed) in enumerate(assumptions.values()):
            mse[i, j, k] = simulation.expect(draws, kernel, assumed)["mse"]

# %%
# In two dimensions every assumption reaches the limit soon: neighbours are close, and that is all that is left. In
# twenty they are not: a lengthscale too short costs most, one too long little, and the wrong kernel hardly anything.
limit = theory.limits(noise_variance=0.1, assumed_noise_variance=0.1, n_neighbors=100).mse
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
for ax, d, curves in zip(axes, dimensions, mse, strict=True):
    for name, curve in zip(assumptions, curves, strict=True):
        ax.loglog(sizes, curve, marker="o", ms=3, label=name)
    ax.axhline(limit, ls="--", color="black", lw=1, label="limit, σ_ξ²(1 + 1/m)")
    ax.set(title=f"{d} inputs", xlabel="training rows n")
    ax.grid(alpha=0.3)
axes[0].set(ylabel="expected squared error")
axes[0].legend()
print(f"limit {limit:.4f}; with the wrong kernel, 20 inputs and 10¹² rows {mse[1, 3, -1]:.4f}")
