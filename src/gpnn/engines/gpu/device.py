"""The device: whether there is one, what it has room for, and work that is cut smaller when it does not fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from gpnn.common.errors import DeviceError

_INTERPRETED = triton.knobs.runtime.interpret
_SPARE = 0.1  # of the device's memory that is left to others


def find_device(name: str) -> torch.device:
    """The device `name`, "cuda" or "cuda:1"; "cpu" stands for emulation, where kernels are interpreted."""
    device = torch.device(name)
    if device.type == "cpu":
        if not _INTERPRETED:
            raise DeviceError(
                "GPU(device='cpu') emulates a GPU, for tests: set TRITON_INTERPRET=1 before gpnn is imported. "
                "engine='cpu' is what computes on this machine's cores."
            )
        return device
    if torch.version.cuda is None:
        raise DeviceError(
            "engine='gpu' needs a PyTorch that is built for CUDA, and this one is not (torch.version.cuda is None). "
            "Install one as pytorch.org says for your driver, or use engine='cpu'."
        )
    if not torch.cuda.is_available():
        raise DeviceError(
            "engine='gpu' found no NVIDIA GPU, or no driver for it. Check that `nvidia-smi` lists one (in a container: "
            "that it was started with --gpus), or use engine='cpu'."
        )
    if (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            f"There is no {name}: this machine has {torch.cuda.device_count()} GPUs, counted from cuda:0."
        )
    return device


def describe(device: torch.device) -> str:
    return "emulated" if device.type == "cpu" else torch.cuda.get_device_name(device)


def free_bytes(device: torch.device) -> int:
    if device.type == "cpu":
        return 2**30
    free, total = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(0, int(free + unused - _SPARE * total))


def check_room(needed: int, device: torch.device, what: str) -> None:
    """Raise before the work begins where it cannot fit."""
    free = free_bytes(device)
    if needed > free:
        raise DeviceError(
            f"{what} need {needed / 2**30:.1f} GiB on the GPU, and {free / 2**30:.1f} GiB are free. End other programs "
            "that use it (`nvidia-smi` lists them), fit on fewer rows, or use engine='cpu'."
        )


def programs(device: torch.device, each: int = 1) -> int:
    """How many programs of a kernel run at a time, `each` on a multiprocessor."""
    if device.type == "cpu":
        return 1
    return each * torch.cuda.get_device_properties(device).multi_processor_count


def upload(array: NDArray, device: torch.device) -> torch.Tensor:
    """A copy on the device; arrays that may not be written to (mapped files) too."""
    array = np.ascontiguousarray(array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of writes to such an array; there are none
        return torch.from_numpy(array).to(device, copy=True)


def in_blocks(work: Callable[[slice], None], n: int, size: int, bar) -> None:
    """`work(block)` for consecutive blocks of range(n), smaller ones where the device's memory does not suffice."""
    begin = 0
    while begin < n:
        block = slice(begin, min(begin + size, n))
        try:
            work(block)
        except torch.cuda.OutOfMemoryError as error:
            if size <= 1:
                raise DeviceError(
                    "One query does not fit the GPU's memory beside the training rows. End other programs that use it "
                    "(`nvidia-smi` lists them), ask for fewer neighbours, or use engine='cpu'."
                ) from error
            torch.cuda.empty_cache()
            size = max(1, size // 2)
            continue
        bar.update(block.stop - block.start)
        begin = block.stop
