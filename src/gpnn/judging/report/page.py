"""The page: a verdict, key numbers, charts, warnings with cures, then what was tried, how long it took, and where."""

from __future__ import annotations

from importlib.resources import files

from gpnn.judging.diagnostics import Diagnostics, Finding, FitRecord, Reason
from gpnn.judging.report.charts import AT_FLOOR, candidate_chart, charts, time_chart
from gpnn.judging.report.markup import Markup, element
from gpnn.judging.report.numbers import digits_of, number, percent, seconds, size

# Nothing may be fetched and no script may run, whatever a column is called.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def html(found: Diagnostics) -> str:
    """The whole page, as text."""
    style = (files("gpnn.judging.report") / "style.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'
    )
    sections = [_header(found), _key_numbers(found), _charts(found), _findings(found)]
    if found.reasons:
        sections.append(_reasons(found))
    if found.fit is not None:
        cards = [_learned(found.fit), _candidates(found.fit), _cost(found, found.fit)]
        sections += [element("div", *cards, class_="grid"), _settings(found.fit)]
    page = element(
        "html",
        element("head", Markup(head), element("title", f"gpnn: {found.target}"), element("style", Markup(style))),
        element("body", element("main", *sections, _footer(found))),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _header(found: Diagnostics) -> Markup:
    rows = f", fitted on {found.fit.n_rows:,} rows" if found.fit else ""
    n_warnings = sum(finding.severity == "warning" for finding in found.findings)
    n_notes = len(found.findings) - n_warnings
    return element(
        "header",
        element("p", f"{found.model} for ", element("b", found.target), rows, class_="kicker"),
        element("h1", element("span", "✓" if found.verdict.trusted else "!", class_="sign", aria_hidden="true"),
                element("span", found.verdict.sentence)),
        element("p", _accuracy(found), " ",
                element("a", _counted(n_warnings, "warning") + ", " + _counted(n_notes, "note"), href="#findings"),
                " below." if found.findings else ".", class_="lead"),
        class_="good" if found.verdict.trusted else "bad",
    )  # fmt: skip


def _accuracy(found: Diagnostics) -> str:
    explained = (
        f"It explains {percent(found.explained, digits_of(found.explained, 3) - 2)} of the variance of {found.target}"
    )
    if found.fit is None or not found.fit.noise_floor > 0:
        return f"{explained}."
    times = found.scores["rmse"] / found.fit.noise_floor
    floor = f"{times:.2g} times the noise floor" if times > AT_FLOOR else "at the noise floor"
    return f"{explained}, with errors {floor}."


def _counted(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'' if n == 1 else 's'}"


def _key_numbers(found: Diagnostics) -> Markup:
    scores, whitened = found.scores, found.whitened_scores
    density = "nll" if "nll" in scores else "log_score"
    low, high = found.calibration_interval
    tiles = [
        ("RMSE", number(scores["rmse"]), f"{number(whitened['rmse'])} of the sd of {found.target}"),
        ("R²", f"{found.explained:.{digits_of(found.explained, 3)}f}", "of the variance explained"),
        ("90 % coverage", percent(scores["coverage_90"]), "should be 90 %"),
        ("mean z²", f"{scores['calibration']:.2f}", f"should be 1; 95 %: {low:.2f} to {high:.2f}"),
        ("NLL" if density == "nll" else "log score", number(whitened[density]), f"with {found.target} scaled to sd 1"),
        ("CRPS", number(scores["crps"]), f"{number(whitened['crps'])} of the sd"),
    ]
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value), element("dd", meaning, class_="meaning"))
            for name, value, meaning in tiles
        ),
        class_="tiles",
        aria_label="Key numbers",
    )


def _charts(found: Diagnostics) -> Markup:
    return element(
        "section",
        *(
            element(
                "figure",
                element("figcaption", element("h2", chart.title), element("p", chart.reading)),
                chart.picture,
                id=chart.name,
                class_="card chart",
            )
            for chart in charts(found)
        ),
        class_="grid charts",
        aria_label="Charts",
    )


def _findings(found: Diagnostics) -> Markup:
    if not found.findings:
        return element("section", element("h2", "Warnings"), element("p", "None: nothing here calls for a cure."),
                       id="findings", class_="card")  # fmt: skip
    return element("section", element("h2", "Warnings and cures"), *map(_finding, found.findings),
                   id="findings", class_="card")  # fmt: skip


def _finding(finding: Finding) -> Markup:
    return element(
        "article",
        element("h3", element("span", finding.severity, class_="tag"), " ", finding.title),
        element("p", finding.cause),
        element("p", element("b", "Cure. "), finding.cure),
        class_=finding.severity,
    )


def _reasons(found: Diagnostics) -> Markup:
    return element(
        "section",
        element("h2", "These rows decided"),
        element("p", "The test rows farthest from their predictions, and the training rows with the largest weights in "
                "each: what the mean moves by when that row's y moves by one. Numbers count from 0."),
        *map(_reason, found.reasons),
        id="reasons", class_="card",
    )  # fmt: skip


def _reason(reason: Reason) -> Markup:
    support = "" if reason.support is None else f", support {percent(reason.support)}"
    observed = "" if reason.observed is None else f", observed {number(reason.observed)}"
    largest = ", ".join(f"{name} {percent(share)}" for name, share in reason.columns.items())
    lines = [
        element("tr", *(element("td", text) for text in (f"{one['row']:,}", number(one["weight"]), number(one["y"]))))
        for one in reason.decisive
    ]
    table = element("table", element("tr", *(element("th", name) for name in ("row", "weight", "y"))), *lines)
    return element(
        "article",
        element("h3", f"Row {reason.row:,}: predicted {number(reason.predicted)} ± {number(reason.sd)}{observed}"),
        element("p", f"As if {number(reason.effective)} rows had weighed alike{support}. Distances are of: {largest}."),
        element("div", table, class_="scroll"),
    )


def _learned(fit: FitRecord) -> Markup:
    low, high = fit.alpha_interval
    facts = {
        "kernel": fit.kernel,
        "whitening": fit.whitening,
        "neighbours m": f"{fit.n_neighbors}",
        "noise share σξ²": number(fit.noise_variance),
        "signal variance σf²": number(fit.kernel_variance),
        "calibration factor α": f"{number(fit.alpha)} (95 %: {number(low)} to {number(high)})",
        "calibration rows": f"{fit.calibration_size:,}",
        "shape of errors": fit.shape.replace("_", "-"),
        "index": f"{fit.index}, recall {percent(fit.recall)}",
        "training rows": f"{fit.n_rows:,}",
    }
    return element("section", element("h2", "What was learned"), _facts(facts), class_="card")


def _candidates(fit: FitRecord) -> Markup:
    if not fit.candidates:
        return Markup()
    names = {name: name.upper() if len(name) < 5 else name for name in fit.candidates[0]}

    def rows(candidates: tuple[dict, ...]) -> list[Markup]:
        return [element("tr", *(element("td", _cell(row[name])) for name in names)) for row in candidates]

    lines = [element("tr", *(element("th", name) for name in names.values())), *rows(fit.candidates)]
    if fit.finalists:
        lines.append(element("tr", element("th", "refined further, on more rows", colspan=len(names), class_="part")))
    table = element("table", *lines, *rows(fit.finalists))
    return element(
        "section",
        element("h2", "Candidates tried"),
        element("p", "NLL + log RMSE of held-out rows, above the best, for each kernel and whitening. Blue is used."),
        candidate_chart(fit),
        element("details", element("summary", f"All {len(fit.candidates) + len(fit.finalists)}"),
                element("div", table, class_="scroll")),
        class_="card",
        id="candidates",
    )  # fmt: skip


def _cell(value) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else value if isinstance(value, str) else number(value)


def _cost(found: Diagnostics, fit: FitRecord) -> Markup:
    facts = {
        "fit": f"{seconds(sum(fit.seconds.values()))} ({fit.engine})",
        "predict": f"{found.n_rows / max(found.predict_seconds, 1e-9):,.0f} rows/s ({fit.predict_engine})",
        "model in memory": size(fit.model_bytes),
    }
    if fit.peak_bytes is not None:
        facts["peak of the process, to the end of the fit"] = size(fit.peak_bytes)
    return element("section", element("h2", "Time and memory"), time_chart(found, fit), _facts(facts),
                   class_="card", id="cost")  # fmt: skip


def _settings(fit: FitRecord) -> Markup:
    return element("section", element("details", element("summary", element("h2", "Settings")), _facts(fit.settings)),
                   class_="card")  # fmt: skip


def _facts(facts: dict[str, str]) -> Markup:
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in facts.items()),
        class_="facts",
    )


def _footer(found: Diagnostics) -> Markup:
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return element("footer", element("p", f"Measured {found.created} on {found.machine}. {versions}."))
