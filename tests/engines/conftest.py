"""The engines that every test of the conformance suite runs over."""

import os

import pytest

from gpnn.engines.cpu import CPU
from gpnn.engines.reference import Reference


def make(name: str):
    if name == "gpu":
        pytest.importorskip("torch")
        pytest.importorskip("triton")
        from gpnn.engines.gpu import GPU

        return GPU(device="cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda", n_jobs=1)
    return {"cpu": CPU, "reference": Reference}[name](1)


@pytest.fixture(params=["cpu", "reference", "gpu"], scope="session")
def engine(request):
    """Each in turn; the GPU's kernels are interpreted where there is none."""
    return make(request.param)


@pytest.fixture(scope="session")
def gpu():
    return make("gpu")
