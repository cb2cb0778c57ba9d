import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import BayesianRidge

from gpnn import CalibratedRegressor, GPnnRegressor, Hyperparameters, report
from gpnn.diagnostics import diagnose
from gpnn.errors import FileError
from gpnn.judging.report.markup import Markup, element
from gpnn.judging.report.numbers import digits_of, number, seconds, size, tick_labels
from gpnn.judging.report.svg import Scale, shortened

CHARTS = ["coverage", "predicted", "pit", "spread", "coverage-by-sd", "support", "floor", "metric", "neighbors"]
WITHOUT_SUPPORT = [name for name in CHARTS if name != "support"]
HOSTILE = "</svg><script>alert('x')</script>\" onload=\"alert(1)&\x00"


def test_the_page_holds_all_that_was_measured(wavy_diagnosis, tmp_path):
    path = tmp_path / "report.html"
    report.write(wavy_diagnosis, path)
    page = path.read_text()
    assert wavy_diagnosis.verdict.sentence in page
    assert re.findall(r'<figure id="([^"]+)"', page) == CHARTS
    for words in ("Candidates tried", "Time and memory", "Settings", "numpy", "height", "Warnings"):
        assert words in page
    assert len(page) < 150_000
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_the_page_needs_nothing_else(wavy_diagnosis):
    page = report.html(wavy_diagnosis)
    assert not re.search(r"https?:|<script|@import|url\(", page)
    assert page.count("default-src 'none'") == 1


def test_pictures_are_well_formed_and_described(wavy_diagnosis):
    pictures = re.findall(r"<svg.*?</svg>", report.html(wavy_diagnosis), flags=re.DOTALL)
    assert len(pictures) == len(CHARTS) + 2  # candidates, times
    for text in pictures:
        picture = ET.fromstring(text)
        assert picture.find("title").text
        assert picture.find("desc").text
        assert not re.search(r"\bnan\b|\binf\b", text)


def test_marks_stay_within_the_picture(wavy_diagnosis):
    for text in re.findall(r"<svg.*?</svg>", report.html(wavy_diagnosis), flags=re.DOTALL):
        picture = ET.fromstring(text)
        _, _, width, height = map(float, picture.get("viewBox").split())
        for mark in picture.iter("circle"):
            assert 0 <= float(mark.get("cx")) <= width
            assert 0 <= float(mark.get("cy")) <= height
        for mark in picture.iter("rect"):
            assert 0 <= float(mark.get("x")) <= float(mark.get("x")) + float(mark.get("width")) <= width


def test_names_cannot_break_out(wavy, tmp_path):
    X = pd.DataFrame(wavy[0], columns=[HOSTILE, "b", "ü" * 300])
    model = GPnnRegressor(params=Hyperparameters(1.0, 0.9, 0.1), n_jobs=1).fit(X[:500], wavy[1][:500])
    report.write(diagnose(model, X[500:900], wavy[1][500:900], target=f"{HOSTILE}\ud800"), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert 'onload="' not in page
    assert "&lt;script&gt;" in page
    assert "\x00" not in page
    for text in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ET.fromstring(text)


def test_a_model_without_a_record_has_the_charts_of_its_predictions(wavy):
    X, y = wavy
    model = CalibratedRegressor(BayesianRidge(), random_state=0).fit(X[:2000], y[:2000])
    page = report.html(diagnose(model, X[2000:], y[2000:]))
    assert re.findall(r'<figure id="([^"]+)"', page) == CHARTS[:5]


@pytest.mark.parametrize("n", [1, 2, 30])
def test_few_rows(wavy, wavy_model, n):
    X, y = wavy[0][2000 : 2000 + n], wavy[1][2000 : 2000 + n]
    assert "Too few test rows" in report.html(diagnose(wavy_model, X, y)) or n == 2


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_any_units(wavy, factor):
    X, y = wavy[0], factor * wavy[1]
    model = GPnnRegressor(params=Hyperparameters(1.0, 0.9, 0.1), n_jobs=1).fit(X[:500], y[:500])
    page = report.html(diagnose(model, X[500:900], y[500:900]))
    assert re.findall(r'<figure id="([^"]+)"', page) == WITHOUT_SUPPORT


def test_rows_far_from_the_data_are_charted(wavy, wavy_model):
    X = wavy[0][2000:2500].copy()
    X[:300, 0] += 20
    found = diagnose(wavy_model, X, wavy[1][2000:2500])
    (text,) = re.findall(r'<figure id="support".*?</figure>', report.html(found), flags=re.DOTALL)
    assert f"{100 * found.support.share_outside:.1f} % of the test rows are outside the support" in text
    assert f"mean z² {found.support.outside.z_squared:.2f}" in text
    assert all(name in text for name in (">outside<", ">1–10 %<", ">10–50 %<", ">50–100 %<"))
    everywhere = replace(found.support, parts=(*found.support.parts[:1],) * 4)
    assert "nan" not in report.html(replace(found, support=everywhere))
    only = diagnose(wavy_model, X[:300], wavy[1][2000:2300])  # nobody is inside
    assert only.support.inside.n_rows == 0
    for text in re.findall(r"<svg.*?</svg>", report.html(only), flags=re.DOTALL):
        assert not re.search(r"\bnan\b", text)


def test_a_noiseless_model(wavy_diagnosis):
    page = report.html(replace(wavy_diagnosis, fit=replace(wavy_diagnosis.fit, noise_floor=0.0)))
    assert "times the noise floor" not in page


def test_a_failure_leaves_what_was_there(wavy_diagnosis, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(TypeError):
        report.write(replace(wavy_diagnosis, scores=None), path)
    assert path.read_text() == "before"
    with pytest.raises(FileError, match="folder exists"):
        report.write(wavy_diagnosis, tmp_path / "nowhere" / "report.html")


def test_no_matplotlib_is_needed():
    code = "import sys, gpnn.report; assert not any(m.startswith('matplotlib') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the parts --------------------------------------------------------------------------------------------------------


def test_elements_escape_text_but_not_markup():
    assert element("p", "a < b", element("b", "&"), class_="x", text_anchor='"') == (
        '<p class="x" text-anchor="&quot;">a &lt; b<b>&amp;</b></p>'
    )
    assert isinstance(element("p"), Markup)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.02134, "0.0213"), (-3.6, "−3.60"), (38.24, "38.2"), (1240.4, "1,240"), (0.9996, "1.00"), (0, "0"),
     (2.1e-7, "2.10·10⁻⁷"), (-4.5e12, "−4.50·10¹²"), (float("nan"), "–")],
)  # fmt: skip
def test_numbers(value, text):
    assert number(value) == text


def test_times_sizes_and_shares():
    assert [seconds(value) for value in (0, 0.02, 35.2, 90, 7200)] == ["< 1 ms", "20 ms", "35.2 s", "1.5 min", "2.0 h"]
    assert [size(value) for value in (512, 827_112, 490e6, 21e9)] == ["512 B", "827 kB", "490 MB", "21 GB"]
    assert [digits_of(share, 3) for share in (0.955, 0.9996, 1.0, -2.0)] == [3, 4, 3, 3]


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [([0, 200, 400], ["0", "200", "400"]), ([0, 0.05, 0.1], ["0.00", "0.05", "0.10"]),
     ([-20_000, 0, 20_000], ["−20k", "0", "20k"]), ([1_000_001, 1_000_002], ["1,000,001", "1,000,002"]),
     ([0, 2.5, 5], ["0.0", "2.5", "5.0"])],
)  # fmt: skip
def test_tick_labels(ticks, labels):
    assert tick_labels(ticks) == labels


@pytest.mark.parametrize("kind", ["linear", "log", "root"])
@pytest.mark.parametrize("ends", [(1.0, 1.01), (0.003, 0.5), (7.0, 4e6), (5.0, 5.0), (1e-30, 1e30)])
def test_scales_show_all_values_with_a_few_ticks(kind, ends):
    scale = Scale.around(ends, kind)
    assert 0 <= scale.share(ends[0]) <= scale.share(ends[1]) <= 1
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 9
    assert all(scale.low <= tick <= scale.high * (1 + 1e-9) for tick in ticks)
    assert np.all(np.diff(ticks) > 0)


def test_long_names_keep_both_ends():
    assert shortened("short") == "short"
    assert shortened("temperature_of_the_sea_at_10_m") == "temperatur…ea_at_10_m"


def test_two_columns_are_shown_as_a_map():
    rng = np.random.default_rng(0)
    X = rng.random((300, 2))
    settings = {"refine": False, "kernel": "exponential", "whitening": "diagonal", "n_neighbors": 20, "n_jobs": 1}
    model = GPnnRegressor(**settings, calibration_size=50, far=False, random_state=0).fit(X, X[:, 0])
    found = diagnose(model, rng.random((50, 2)), rng.random(50))
    page = report.html(found)
    assert re.findall(r'<figure id="(map[^"]*)"', page) == ["map", "map-sd"]
    assert len(found.map.mean) == len(found.map.x) * len(found.map.y)
    at = np.array([found.map.x[3], found.map.y[5]])
    mean, std = model.predict(at[None], return_std=True)
    place = 5 * len(found.map.x) + 3
    assert (found.map.mean[place], found.map.std[place]) == (pytest.approx(mean[0]), pytest.approx(std[0]))
