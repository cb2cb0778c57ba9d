"""Distances between columns are those along the globe, or round a circle."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from gpnn import GPnnRegressor, geography
from gpnn.errors import InvalidInputError

LONDON, PARIS, SYDNEY = (51.5, -0.13), (48.86, 2.35), (-33.87, 151.2)


def great_circle(a, b) -> float:
    """By the haversine formula, in km."""
    (phi, theta), (psi, chi) = np.radians([a, b])
    h = np.sin((psi - phi) / 2) ** 2 + np.cos(phi) * np.cos(psi) * np.sin((chi - theta) / 2) ** 2
    return 2 * geography.EARTH_RADIUS * np.arcsin(np.sqrt(h))


def distance(columns) -> float:
    return float(np.linalg.norm(columns[0] - columns[1]))


def test_a_region_is_a_plane_with_true_distances():
    places = np.array([LONDON, PARIS, (55.0, -3.0), (50.0, 5.0)])
    found = geography.GlobeCoordinates().fit(places)
    assert found.flat_
    assert found.get_feature_names_out().tolist() == ["east", "north"]
    assert distance(found.transform([LONDON, PARIS])) == pytest.approx(great_circle(LONDON, PARIS), rel=0.003)
    north, south = found.transform([(52.0, 0.0), (50.0, 0.0)])
    assert north[1] - south[1] == pytest.approx(222.4, rel=0.003)


def test_the_globe_is_a_sphere():
    places = np.array([LONDON, SYDNEY, (0.0, -90.0)])
    found = geography.GlobeCoordinates().fit(places)
    assert not found.flat_
    chord = 2 * geography.EARTH_RADIUS * np.sin(great_circle(LONDON, SYDNEY) / 2 / geography.EARTH_RADIUS)
    assert distance(found.transform([LONDON, SYDNEY])) == pytest.approx(chord)
    assert distance(found.transform([(10.0, 179.9), (10.0, -179.9)])) == pytest.approx(21.9, abs=0.1)
    np.testing.assert_allclose(found.transform([(10.0, 350.0)]), found.transform([(10.0, -10.0)]))


def test_what_comes_round_again_is_near_itself():
    found = geography.PeriodicColumns(period=[24, 360]).fit([[0.0, 0.0]])
    assert distance(found.transform([[23.9, 5.0], [0.1, 5.0]])) == pytest.approx(0.2, rel=1e-3)
    assert distance(found.transform([[3.0, 359.0], [3.0, 1.0]])) == pytest.approx(2.0, rel=1e-3)
    assert found.get_feature_names_out().tolist() == ["x0_sin", "x0_cos", "x1_sin", "x1_cos"]


def test_in_a_pipeline():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-60, 60, 300), rng.uniform(-180, 180, 300)])
    y = np.cos(np.radians(X[:, 1]))
    model = make_pipeline(geography.GlobeCoordinates(), GPnnRegressor(refine=False, kernel="rbf", n_jobs=1)).fit(X, y)
    east, west = model.predict([[0.0, 179.99], [0.0, -179.99]])
    assert east == pytest.approx(west, abs=1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: geography.GlobeCoordinates().fit([[95.0, 0.0], [1.0, 2.0]]), "latitude = 95 in row 0"),
        (lambda: geography.GlobeCoordinates().fit([[5.0, 0.0], [1.0, 400.0]]), "longitude = 400 in row 1"),
        (lambda: geography.GlobeCoordinates().fit([[5.0], [1.0]]), "Give two"),
        (lambda: geography.PeriodicColumns(-1.0).fit([[1.0]]), "positive number"),
        (lambda: geography.PeriodicColumns([1.0, 2.0]).fit([[1.0]]), "one for each of 1 columns"),
    ],
)
def test_what_cannot_be_a_place_is_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()
