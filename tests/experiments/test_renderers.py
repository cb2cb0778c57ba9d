"""Tables and figures from made-up results: what is there is compared, what is missing is said."""

import numpy as np
import pytest

import methods
import render
from gpnn.errors import FileError
from renderers import evidence as evidence_module
from renderers.document import rewrite
from renderers.evidence import Evidence, Number
from renderers.figures import FIGURES
from renderers.tables import TABLES, _difference, _digits
from runners import oakley, prediction, real, simulation
from store import Store

PAPERS_BIKE = {"rmse": 0.624, "nll": 0.953, "calibration": 0.974}


def real_record(made, dataset, method, kernel="rbf", seed=0, shift=0.0, max_test=None, **job):
    metrics = {name: value + shift for name, value in PAPERS_BIKE.items()}
    result = {"metrics": metrics, "fit_seconds": 10.0 + seed, "evaluate_seconds": 1.0, "stages": {"calibrate": 4.0},
              "n_train": 700, "d": 13}  # fmt: skip
    what = {"dataset": dataset, "method": method, "kernel": kernel, "seed": seed, "max_test": max_test}
    return {"job": what | {"protocol": real.protocol_of(method)} | job, "result": result, "made": made}


def write(folder, kind, records):
    for record in records:
        assert Store(folder / f"{kind}.jsonl").append(record)


def lines(table, *words):
    return [line for line in table.splitlines() if all(word in line for word in words)]


def test_a_cell_has_ours_published_and_the_difference(tmp_path, made):
    write(tmp_path, "real", [real_record(made, "bike", "gpnn", seed=seed, shift=0.001 * seed) for seed in range(3)])
    (line,) = lines(TABLES["table1"](Evidence.load(tmp_path)), "Bike", "GPnn")
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2:5] == ["0.625 ± 0.0010", "0.624 ± 0.0079", "+0.2 %"]
    assert cells[5:8] == ["0.954 ± 0.0010", "0.953 ± 0.013", "+0.001"]


def test_differences_beyond_the_spreads_are_bold():
    published = Number(0.624, 0.0079, "0.624 ± 0.0079")
    assert _difference("rmse", Number(0.60, 0.001), published) == "**−3.8 %**"
    assert _difference("rmse", Number(0.615, 0.001), published) == "−1.4 %"
    assert _difference("rmse", Number(0.60, None), published) == "−3.8 %"  # one run has no spread
    assert _difference("nll", Number(-1.6, 0.01), Number(-1.5, 0.01, "")) == "**−0.100**"
    assert _difference("nll", None, published) == "–"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0428, "0.0428"), (-2.0149, "−2.01"), (1234.5, "1234"), (6.7e-5, "6.70e-05"), (0.0, "0.0")]
)
def test_digits(value, text):
    assert _digits(value) == text


def test_what_is_missing_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "missing", lambda name: "not written" if name == "svgp" else None)
    monkeypatch.setattr(evidence_module, "find", lambda dataset: None if dataset.name == "song" else dataset.name)
    table = TABLES["all_metrics"](Evidence.load(tmp_path))
    assert "not run" in lines(table, "Bike", "GPnn")[0]
    assert "not available here" in lines(table, "Bike", "SVGP")[0]
    assert "not available here" in lines(table, "Song", "GPnn")[0]
    assert len(lines(table, "not ")) == 7 * 7  # no row for a method that is neither published nor run


def test_the_best_distributed_method_is_named(tmp_path, made):
    shifts = {"poe": 0.03, "rbcm": -0.01, "grbcm": 0.0}
    write(tmp_path, "real", [real_record(made, "bike", name, shift=shift) for name, shift in shifts.items()])
    (line,) = lines(TABLES["table1"](Evidence.load(tmp_path)), "Bike", "distributed")
    assert "best distributed (rBCM)" in line
    assert "0.614" in line


def test_whole_and_capped_test_sets_are_not_mixed(tmp_path, made):
    write(tmp_path, "real", [real_record(made, "bike", "gpnn", max_test=cap, shift=0.1) for cap in (50, 500)])
    write(tmp_path, "real", [real_record(made, "bike", "gpnn", max_test=500, seed=1, shift=0.1)])
    summary = Evidence.load(tmp_path).real["bike", "gpnn", "rbf"]
    assert (summary.max_test, summary.seeds) == (500, 2)
    assert "Bike: the first 500 rows of each test set." in TABLES["kernels"](Evidence.load(tmp_path))
    write(tmp_path, "real", [real_record(made, "bike", "gpnn")])
    summary = Evidence.load(tmp_path).real["bike", "gpnn", "rbf"]
    assert (summary.max_test, summary.metrics["rmse"]) == (None, Number(0.624))


def test_results_of_another_protocol_are_left_out_and_counted(tmp_path, made, capsys):
    write(tmp_path, "real", [real_record(made, "bike", "gpnn", protocol="old"), real_record(made, "bike", "poe")])
    assert set(Evidence.load(tmp_path).real) == {("bike", "poe", "rbf")}
    assert "real: 1 results of another protocol are left out" in capsys.readouterr().err


def test_data_sets_and_methods_that_the_paper_lacks_are_shown_without_a_difference(tmp_path, made):
    write(tmp_path, "real", [real_record(made, "covtype", "gpnn"), real_record(made, "bike", "subset")])
    table = TABLES["all_metrics"](Evidence.load(tmp_path))
    assert lines(table, "Covtype", "GPnn", "0.624 | – | – |")
    assert lines(table, "Bike", "subset of data", "0.624 | – | – |")


def test_training_times_as_ratios(tmp_path, made):
    write(tmp_path, "real", [real_record(made, "bike", "gpnn", seed=seed) for seed in range(3)])
    (line,) = lines(TABLES["train_times"](Evidence.load(tmp_path)), "Bike", "GPnn")
    assert "| 13,517 | 13 | GPnn | 11.0 ± 1.0 | 28.4 ± 0.12 | 2.6 |" in line


@pytest.fixture
def everything(tmp_path, made):
    """One small result of each kind."""
    folder = tmp_path / "results"
    write(folder, "real", [real_record(made, name, method) for name in ("bike", "song") for method in ("gpnn", "poe")])
    job = {"data": "protein", "method": "gpnn", "protocol": prediction.protocol_of("gpnn")}
    times = {"single_seconds": 0.004, "batch_seconds": 0.5, "batch": 1000, "rows": "protein"}
    write(folder, "prediction", [{"job": job, "result": times, "made": made}])
    sizes = [(n, kernel) for n in (10**4, 10**5) for kernel in ("rbf", "exponential")]
    metrics = {"rmse": 0.36, "nll": 0.4, "calibration": 1.0}
    costs = {"fit_seconds": 1.0, "evaluate_seconds": 2.0, "peak_gib": 0.3, "table_gib": 0.01}
    write(folder, "oakley", [
        {"job": {"n": n, "kernel": kernel, "seed": 0, "protocol": oakley.protocol()}, "made": made,
         "result": {"metrics": metrics, "limits": {"rmse": 0.3, "nll": 0.2, "calibration": 1.0}} | costs}
        for n, kernel in sizes
    ])  # fmt: skip
    for lengthscale, vary in ((0.5, ["lengthscale", "kernel_variance", "noise_variance"]), (1.0, ["lengthscale"])):
        common = {"n": 10**4, "n_neighbors": 400, "lengthscale": lengthscale, "kernel_variance": 0.9,
                  "noise_variance": 0.1}  # fmt: skip
        rows = [
            {"varied": name, f"assumed_{name}": value, "mse": 0.11, "calibration": 0.9, "nll": 0.5, "mse_se": 0.01,
             "calibration_se": 0.01, "nll_se": 0.01, "limit_mse": 0.1, "limit_calibration": 1.0, "limit_nll": 0.3}
            for name in vary for value in (0.1, 1.0)
        ]  # fmt: skip
        job = {"n": 10**4, "lengthscale": lengthscale, "vary": vary, "points": 2, "n_queries": 8,
               "protocol": simulation.protocol()}  # fmt: skip
        write(folder, "simulation", [{"job": job, "result": {"common": common, "rows": rows}, "made": made}])
    return folder


def test_every_table_is_written(everything, tmp_path):
    assert render.main([*TABLES, "--results", str(everything), "--output", str(tmp_path / "output")]) == 0
    for name in TABLES:
        assert (tmp_path / "output" / f"{name}.md").read_text().count("\n") > 3
    assert lines((tmp_path / "output" / "prediction_times.md").read_text(), "35,567", "0.00400", "| 0.02 | 5.0 |")
    assert lines((tmp_path / "output" / "oakley.md").read_text(), "100,000", "RBF", "0.360 (0.300)")
    assert lines((tmp_path / "output" / "simulation.md").read_text(), "1e4", "0.110 (0.10)", "0.110 (1.00)", "0.200")


def test_every_figure_has_something_to_show(everything):
    pytest.importorskip("matplotlib")
    panels = {"train_times": 1, "results": 3, "oakley": 3, "sim_limits": 3, "sim_grid": 9}
    for name, count in panels.items():
        figure = FIGURES[f"figure_{name}"](Evidence.load(everything))
        assert len(figure.axes) == count
        assert all(ax.lines for ax in figure.axes)


def test_figures_are_saved_twice_and_left_out_where_nothing_was_run(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    output = tmp_path / "output"
    assert (
        render.main(["figure_train_times", "figure_oakley", "--results", str(tmp_path), "--output", str(output)]) == 0
    )
    assert "figure_oakley: not run yet" in capsys.readouterr().out
    assert {path.name for path in output.iterdir()} == {"figure_train_times.png", "figure_train_times.svg"}


def test_the_figure_of_results_marks_ours_and_published(everything):
    pytest.importorskip("matplotlib")
    figure = FIGURES["figure_results"](Evidence.load(everything))
    marks = [line for line in figure.axes[2].lines if len(line.get_xdata())]
    hollow = [line for line in marks if line.get_markerfacecolor() == "none"]
    assert len(hollow) == 7
    assert len(marks) == 7 + 2
    assert np.isclose(marks[1].get_ydata(), 0.624).all()


def test_an_unknown_table_is_told_the_near_ones(tmp_path, capsys):
    assert render.main(["tabel1", "--results", str(tmp_path), "--output", str(tmp_path / "output")]) == 2
    assert "no table or figure 'tabel1'. Near it are: table1" in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_generated_blocks_are_replaced_and_prose_is_kept(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n<!-- generated: a -->\nold\n<!-- end of a -->\n\nAfter.\n")
    for _ in range(2):
        rewrite(page, {"a": "| new |", "b": "unused"})
    assert page.read_text() == "Before.\n\n<!-- generated: a -->\n\n| new |\n\n<!-- end of a -->\n\nAfter.\n"


@pytest.mark.parametrize("text", ["<!-- generated: a -->\nold\n", "<!-- generated: c -->\nold\n<!-- end of c -->\n"])
def test_a_block_without_an_end_or_a_table_is_refused(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(FileError, match="has no end marker, or there is no such table"):
        rewrite(page, {"a": "| new |"})
    assert page.read_text() == text


def test_the_page_can_be_rewritten_from_the_results_that_are_kept(tmp_path):
    copy = tmp_path / "reproduction.md"
    copy.write_text(render.PAGE.read_text())
    evidence = Evidence.load()
    rewrite(copy, {name: table(evidence) for name, table in TABLES.items()})
    assert len(copy.read_text()) > 5000
