import csv
import json

import pytest

from gpnn import Hyperparameters, InvalidInputError, plots, simulation
from gpnn.cli import main
from gpnn.errors import MissingExtraError
from gpnn.theory import limits

SMALL = ["--queries", "20", "--neighbors", "10", "--dimension", "3", "--points", "3", "--n", "1000", "1e12"]


def test_sweep_is_draw_and_evaluate_for_every_n_and_value():
    true, assumed = Hyperparameters(1.0, 0.9, 0.1), Hyperparameters(1.0, 0.8, 0.2)
    rows = simulation.sweep(
        [100, 10**9], {"noise_variance": [0.05, 0.4]}, "rbf", true, "exponential", assumed,
        d=2, n_queries=15, n_neighbors=8,
    )  # fmt: skip
    assert [(row["n"], row["assumed_noise_variance"]) for row in rows] == [
        (100, 0.05), (100, 0.4), (10**9, 0.05), (10**9, 0.4)
    ]  # fmt: skip
    draws = simulation.draw(10**9, 2, 15, 8, "rbf", true, random_state=0)
    last = simulation.evaluate(draws, "exponential", Hyperparameters(1.0, 0.8, 0.4))
    assert {name: rows[-1][name] for name in last} == last
    assert rows[-1]["limit_nll"] == limits(0.1, 0.4, 8).nll
    with pytest.raises(InvalidInputError, match="Cannot vary smoothness"):
        simulation.sweep([10], {"smoothness": [1]}, "rbf", true, "rbf", assumed)


@pytest.mark.parametrize(("preset", "panels"), [("figure2", 3), ("grid", 9)])
def test_paper_presets_make_a_table_and_a_figure(preset, panels, tmp_path, capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "gpnn.cli.simulate.simulation_figure", lambda *a: drawn.append(plots.simulation_figure(*a)) or drawn[-1]
    )
    out, figure = tmp_path / "table.csv", tmp_path / "figure.svg"
    assert main(["simulate", "--paper", preset, *SMALL, "--out", str(out), "--figure", str(figure)]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == 2 * 3 * {"figure2": 2, "grid": 3}[preset]
    assert {float(row["n"]) for row in rows} == {1e3, 1e12}
    assert "<svg" in figure.read_text()
    assert len(drawn[0].axes) == panels
    for ax in drawn[0].axes:
        assert {line.get_label() for line in ax.lines} == {
            "n = 1e3",
            "n = 1e12",
            "limit",
            "limit, true θ",
            "true value",
        }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.svg", "table.csv"]  # nothing unfinished is left
    assert "calibration" in capsys.readouterr().out


def test_json_goes_to_stdout_and_nothing_else_does(capsys):
    assert main(["simulate", *SMALL, "--vary", "kernel_variance", "--range", "0.5", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 6
    assert {row["varied"] for row in rows} == {"kernel_variance"}
    assert all(row["mse_se"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--noise-variance", "-1"], "noise_variance"),
        (["--neighbors", "2000"], "no such neighbours"),
        (["--range", "2", "1"], "lower one first"),
        (["--out", "nowhere/table.csv"], "no folder"),
    ],
)
def test_bad_arguments_are_explained(arguments, message, capsys):
    assert main(["simulate", *SMALL, *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--dimension", "0"], ["--kernel", "cubic"], ["--n", "many"]])
def test_malformed_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["simulate", *arguments])
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_a_missing_matplotlib_is_noticed_before_the_work(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gpnn\[plots\]'"):
        plots.new_figure()
    assert (
        main(["simulate", "--figure", str(tmp_path / "a.png")]) == 2
    )  # with the full-size defaults: minutes if it ran
    assert "gpnn[plots]" in capsys.readouterr().err


def test_interrupted_work_leaves_no_file(monkeypatch, tmp_path):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("gpnn.cli.simulate.sweep", interrupted)
    assert main(["simulate", *SMALL, "--out", str(tmp_path / "a.csv")]) == 130
    assert not list(tmp_path.iterdir())
