"""On an NVIDIA GPU (extra gpnn[gpu]): rows stay on the device, queries go in, laws come out.

torch moves and sorts, at the speed of memory; what it has no fast operation for, nearest rows and small factorisations
by the hundred thousand, are Triton kernels (`kernels/`), which can be interpreted where there is no GPU.
"""

from gpnn.engines.gpu.engine import GPU

__all__ = ["GPU"]
