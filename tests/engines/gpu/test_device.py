"""What is said where there is no GPU, or one that is too small; work that does not fit is cut, not failed."""

import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gpnn import GPnnRegressor, Hyperparameters  # noqa: E402
from gpnn.cli import main  # noqa: E402
from gpnn.engines.gpu import device as devices  # noqa: E402
from gpnn.engines.gpu import engine as engines  # noqa: E402
from gpnn.engines.parallel import progress_bar  # noqa: E402
from gpnn.errors import DeviceError, InvalidInputError, MissingExtraError  # noqa: E402

GIVEN = {"params": Hyperparameters(0.5, 0.9, 0.05), "n_neighbors": 5, "calibration_size": 0, "random_state": 0}


@pytest.fixture
def data(rng):
    X = rng.normal(size=(60, 2))
    return X, X[:, 0] + 0.1 * rng.normal(size=60)


def test_a_torch_without_cuda(monkeypatch, data):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(DeviceError, match=r"built for CUDA.*engine='cpu'"):
        GPnnRegressor(engine="gpu", **GIVEN).fit(*data)


def test_no_gpu_or_no_driver(monkeypatch, data):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match=r"nvidia-smi.*engine='cpu'"):
        GPnnRegressor(engine="gpu", **GIVEN).fit(*data)


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices.find_device("cuda:1").index == 1
    with pytest.raises(DeviceError, match="no cuda:2: this machine has 2 GPUs"):
        devices.find_device("cuda:2")


def test_too_little_memory_for_the_rows(monkeypatch, gpu, data):
    monkeypatch.setattr(devices, "free_bytes", lambda device: 100)
    with pytest.raises(DeviceError, match=r"60 rows of 2 columns need .* GiB are free.*engine='cpu'"):
        GPnnRegressor(engine=gpu, **GIVEN).fit(*data)


def test_the_extra_is_asked_for_by_name(monkeypatch, data):
    for name in [name for name in sys.modules if name.startswith("gpnn.engines.gpu")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gpnn\[gpu\]'"):
        GPnnRegressor(engine="gpu", **GIVEN).fit(*data)


def test_emulation_is_for_tests_only(monkeypatch):
    monkeypatch.setattr(devices, "_INTERPRETED", False)
    with pytest.raises(DeviceError, match="TRITON_INTERPRET=1"):
        devices.find_device("cpu")


def test_a_block_that_does_not_fit_is_split():
    done = []

    def work(part):
        if part.stop - part.start > 3:
            raise torch.cuda.OutOfMemoryError("too much")
        done.append(part)

    with progress_bar(20, None) as bar:
        devices.in_blocks(work, 20, 16, bar)
    assert [n for part in done for n in range(part.start, part.stop)] == list(range(20))
    assert max(part.stop - part.start for part in done) == 2


def test_a_query_that_does_not_fit_at_all():
    def work(part):
        raise torch.cuda.OutOfMemoryError("too much")

    with progress_bar(2, None) as bar, pytest.raises(DeviceError, match="One query does not fit"):
        devices.in_blocks(work, 2, 2, bar)


def test_batches_change_nothing(gpu, data):
    X, y = data
    model = GPnnRegressor(engine=gpu, **GIVEN).fit(X, y)
    once = model.predict(X[:7], return_std=True)
    again = model.set_params(engine=type(gpu)(gpu.device, batch_size=3)).predict(X[:7], return_std=True)
    np.testing.assert_array_equal(once, again)


def test_rows_leave_the_device_with_their_model(gpu, data):
    model = GPnnRegressor(engine=gpu, **GIVEN).fit(*data)
    before = len(engines._on_device)
    held = gpu.hold(model.index_, model._y)._held
    model.predict(data[0][:2])
    assert gpu.hold(model.index_, model._y)._held is held  # sent once
    del model, held
    gc.collect()
    assert len(engines._on_device) == before - 1


def test_an_engine_pickles_as_its_settings(gpu, data):
    model = GPnnRegressor(engine=gpu, **GIVEN).fit(*data)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(data[0][:3]), model.predict(data[0][:3]))
    assert vars(again.engine) == vars(type(gpu)(gpu.device, n_jobs=gpu.n_jobs))


def test_an_index_of_ones_own_stays_on_the_cpu(gpu, data):
    class Mine:
        order = np.arange(60)
        exact = True

        def build(self, *args):
            return self

    with pytest.raises(InvalidInputError, match="gpnn's own indexes, not a Mine"):
        GPnnRegressor(engine=gpu, index=Mine(), **GIVEN).fit(*data)


def test_engines_that_are_none():
    for wrong in ("tpu", object()):
        with pytest.raises(InvalidInputError, match="cpu, gpu, reference"):
            GPnnRegressor(engine=wrong).fit([[1.0], [2.0]], [1.0, 2.0])


def test_the_command_line_says_in_one_line_that_there_is_no_gpu(monkeypatch, tmp_path, capsys, data):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(torch.version, "cuda", None)
    table = tmp_path / "train.csv"
    np.savetxt(table, np.column_stack(data), delimiter=",", header="a,b,y", comments="")
    assert main(["fit", str(table), "--target", "y", "--out", str(tmp_path / "m.gpnn"), "--engine", "gpu"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "engine='cpu'" in message
    assert not (tmp_path / "m.gpnn").exists()


def test_importing_gpnn_needs_neither_torch_nor_triton():
    code = "import sys, gpnn; gpnn.GPnnRegressor(engine='gpu'); print({'torch', 'triton'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
