"""The machine code that predictions need, compiled while a wheel is built, so that a new process answers at once.

`pip install .` therefore makes a wheel for this Python and this kind of CPU. Elsewhere, or with other versions of numba
or numpy, its code is passed over and compiled as needed (`gpnn/engines/compiled/kept.py`). A wheel without it serves
every platform: HATCH_BUILD_NO_HOOKS=1 pip install .
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PLACE = "gpnn/engines/compiled/machine_code"


def compile_for_predictions() -> None:
    """Predict with models of every kernel, index and whitening, as they are loaded from files."""
    import numpy as np

    from gpnn import Broad, GPnnRegressor, Hyperparameters
    from gpnn.common.kernels import KERNELS, get_kernel_or_sum
    from gpnn.engines.cpu.solver import solve_path

    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    settings = {"calibration_size": 0, "n_neighbors": 32, "n_jobs": 1, "random_state": 0}
    params = Hyperparameters(1.0, 1.0, 0.1)
    with tempfile.TemporaryDirectory() as folder:
        for whitening, index in (("full", "kdtree"), ("ranks", "flat"), ("diagonal", "ivf")):
            model = GPnnRegressor(params=params, whitening=whitening, index=index, kernel="rbf", **settings)
            path = Path(folder) / index
            model.fit(X, X[:, 0]).save(path)
            loaded = GPnnRegressor.load(path)
            loaded.predict(X[:1])
            tied = np.zeros(1, np.float32)
            loaded.index_.tied(loaded.index_.points(np.arange(1)), tied, 1)  # rows as far as each other
    # float64, where float32 does not suffice: two rows that are one, and no noise
    rows = np.zeros((1, 2, 3), np.float32)
    a_sum = get_kernel_or_sum("matern32+exponential")  # one code serves all of them
    for kernel in [*KERNELS.values(), a_sum]:
        for noise in (0.1, 0.0):
            params = Hyperparameters(1.0, 1.0, noise, Broad(0.5, 2.0) if kernel is a_sum else None)
            solve_path(rows[:, 0], rows, np.zeros((1, 2)), kernel, params, np.array([2]))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent / "src"))
    compile_for_predictions()
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class MachineCode(BuildHookInterface):
        def initialize(self, version: str, build_data: dict) -> None:
            if version == "editable":  # numba keeps what it compiles beside the sources
                return
            self._folder = tempfile.TemporaryDirectory()
            environment = os.environ | {"NUMBA_CACHE_DIR": self._folder.name}
            done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
            if done.returncode:
                self.app.display_warning(
                    f"gpnn: no machine code in this wheel, which will compile when first used: {done.stderr[-2000:]}"
                )
                return
            for path in Path(self._folder.name).rglob("*.nb[ci]"):
                build_data["force_include"][str(path)] = f"{PLACE}/{path.name}"
            build_data |= {"pure_python": False, "infer_tag": True}

        def finalize(self, version: str, build_data: dict, artifact_path: str) -> None:
            if version != "editable":
                self._folder.cleanup()
