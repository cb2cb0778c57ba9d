"""protocol.toml holds what the paper says, the library does what protocol.toml says, and results know which it was."""

import copy
from inspect import signature

import numpy as np
import pytest

import methods
from gpnn import datasets
from gpnn.cli import simulate
from gpnn.errors import InvalidInputError
from gpnn.kernels import KERNELS
from gpnn.stages import estimation, whitening
from protocol import PROTOCOL, fingerprint, section
from runners import RUNNERS, oakley, prediction, real, simulation


def test_the_papers_numbers():
    gpnn = PROTOCOL["gpnn"]
    assert gpnn["n_blocks"] * gpnn["block_size"] == 3000  # e
    assert (gpnn["block_size"], gpnn["n_neighbors"], gpnn["calibration_size"]) == (300, 400, 1000)  # s, m, c
    assert (PROTOCOL["distributed"]["expert_size"], PROTOCOL["distributed"]["n_steps"]) == (625, 100)
    assert [PROTOCOL["svgp"][key] for key in ("n_inducing", "batch_size", "learning_rate", "n_epochs")] == [
        1024, 1024, 0.01, 100,
    ]  # fmt: skip
    assert PROTOCOL["real"]["train_share"] == [7, 9]
    assert len(PROTOCOL["real"]["seeds"]) == 3
    assert PROTOCOL["oakley"]["sizes"][-1] == 5 * 10**7
    assert [part["lengthscale"] for part in PROTOCOL["simulation"]["sweeps"]] == [0.5, 1.0]
    assert PROTOCOL["simulation"]["d"] == 20


def test_the_library_has_the_constants_that_the_protocol_records():
    fixed = PROTOCOL["gpnn"]["fixed"]
    seen = []

    def slope(theta):
        seen.append(theta)
        return 0.0, np.array([1.0, -1.0, 1.0])

    estimation.OPTIMIZERS["adam"](slope, np.full(3, np.log(2.0)))
    raw = [np.log(np.expm1(theta[0])) for theta in seen[:2]]
    assert raw[0] - raw[1] == pytest.approx(fixed["adam_rate"], rel=1e-6)  # Adam's first step is the rate
    assert len(seen) == fixed["adam_steps"] + 1
    assert fixed["noise_floor"] == estimation.NOISE_FLOOR
    assert fixed["whitening_ridge"] == whitening._RIDGE


def test_names_in_the_protocol_are_known():
    for kind in (PROTOCOL["real"], PROTOCOL["quick"]["real"]):
        assert set(kind["datasets"]) <= set(datasets.names("paper"))
        assert set(kind["methods"]) <= set(methods.METHODS)
    for names in PROTOCOL["kernels"].values():
        assert set(names) <= set(KERNELS)
    assert set(PROTOCOL["quick"]) == set(RUNNERS)
    for kind, changed in PROTOCOL["quick"].items():
        assert set(changed) - {"max_test", "largest_for_rivals"} <= set(PROTOCOL[kind])


def test_gpnn_simulate_draws_the_same_figures():
    settings = PROTOCOL["simulation"]
    assert {name: tuple(ends) for name, ends in settings["ranges"].items()} == simulate._RANGES
    sweeps = {part["lengthscale"]: set(part["vary"]) for part in settings["sweeps"]}
    for figure in simulate._PAPER.values():
        for lengthscale, varied in figure.items():
            assert set(varied) <= sweeps[lengthscale]


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_takes_its_settings(name):
    if reason := methods.missing(name):
        pytest.skip(reason)
    model = methods.build(name, "rbf", seed=3, n_jobs=1)
    assert model.kernel == "rbf"
    assert model.random_state == 3
    for key, value in methods.settings(name).items():
        assert key == "fixed" or getattr(model, key) == value
    assert {"X", "y"} <= set(signature(model.evaluate).parameters)


def test_paper_gpnn_is_the_papers():
    model = methods.paper_gpnn("exponential", 7)
    assert model.get_params() == model.get_params() | {"kernel": "exponential", "random_state": 7, "optimizer": "adam"}


@pytest.mark.parametrize(("asked", "near"), [("grcbm", "grbcm"), ("SVGP", "svgp"), ("gpn", "gpnn")])
def test_an_unknown_method_is_told_the_near_ones(asked, near):
    with pytest.raises(InvalidInputError, match=f"no method '{asked}'. Near it are:.*{near}"):
        methods.get(asked)


def test_fingerprints_change_with_settings_and_with_nothing_else():
    settings = section("gpnn")
    assert fingerprint(dict(reversed(settings.items()))) == fingerprint(settings)
    assert fingerprint(settings | {"n_neighbors": 401}) != fingerprint(settings)


@pytest.mark.parametrize(
    ("where", "key", "changed"),
    [("gpnn", "n_neighbors", {"gpnn", "oakley", "prediction"}), ("distributed", "n_steps", {"poe", "grbcm"}),
     ("svgp", "n_epochs", {"svgp"}), ("oakley", "noise_variance", {"oakley"}), ("simulation", "d", {"simulation"}),
     ("prediction", "batch", {"prediction"})],
)  # fmt: skip
def test_a_setting_marks_the_results_that_depend_on_it_and_no_others(monkeypatch, where, key, changed):
    def protocols():
        of_methods = {name: real.protocol_of(name) for name in ("gpnn", "poe", "grbcm", "svgp")}
        others = {"prediction": prediction.protocol_of("gpnn"), "oakley": oakley.protocol()}
        return of_methods | others | {"simulation": simulation.protocol()}

    before = protocols()
    monkeypatch.setitem(PROTOCOL, where, copy.deepcopy(PROTOCOL[where]) | {key: 12345})
    after = protocols()
    assert {name for name in before if before[name] != after[name]} == changed
