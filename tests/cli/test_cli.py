import subprocess
import sys

import pytest

from gpnn.cli import main


def test_demo_prints_measured_values_beside_limits(capsys, monkeypatch, few_steps):
    monkeypatch.setattr("gpnn.cli.demo._TEST_ROWS", 2000)
    assert main(["demo", "--rows", "3000", "--kernel", "rbf", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    for word in ("RMSE", "NLL", "calibration", "90 % coverage", "learn", "index", "calibrate", "limit"):
        assert word in out
    rmse = float(next(line for line in out.splitlines() if line.startswith("RMSE")).split()[1])
    assert 0.29 < rmse < 0.9  # between the noise and no skill at all


def test_demo_of_few_rows(capsys, few_steps):
    assert main(["demo", "--rows", "100"]) == 0
    assert "chosen" in capsys.readouterr().out


@pytest.mark.parametrize("rows", ["three", "0", "10.5", "inf"])
def test_bad_arguments_are_explained(rows, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--rows", rows])
    assert stop.value.code == 2
    assert "--rows" in capsys.readouterr().err


def test_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "gpnn.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("gpnn ")
