"""What is known of each data set. The paper's preparation itself is in `recipes.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from gpnn.common.errors import InvalidInputError
from gpnn.datasets import recipes

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("paper", "stand-in", "left out")


@dataclass(frozen=True)
class Dataset:
    """One data set: what it is, where it comes from, how it is read and prepared."""

    name: str
    title: str
    kind: str
    """"paper": one of its seven; "stand-in": something like one of them that can be run; "left out" by the paper."""
    n: int
    """Rows after preparation; of the raw table where the paper left the set out."""
    d: int
    """Inputs after preparation; columns of numbers where the paper left the set out."""
    preparation: str
    """What is done to the published table or, for a set left out, why it was."""
    citation: str
    page: str
    licence: str = "CC BY 4.0"

    prepare: Callable[[pd.DataFrame], recipes.Table] | None = field(default=None, repr=False)
    parquet: str = ""
    """The file's name in the data directory."""
    parquet_sha256: str | None = None
    """Of the file that this package was tried with; None: the recipe has never seen the real data."""

    url: str | None = None
    """The original archive; its sha256 is None where it was never seen: then the first download is trusted."""
    sha256: str | None = None
    member: str = ""
    """The file in the archive; with a * several files, whose rows are put together."""
    columns: tuple[str, ...] = field(default=(), repr=False)
    """Their names, where the file has no header."""
    separator: str = ","
    types: Mapping[str, str] | None = None
    tidy: Callable[[pd.DataFrame, Path], pd.DataFrame] | None = field(default=None, repr=False)
    """Makes the raw table the same whichever file it was read from."""

    @property
    def tried(self) -> bool:
        """Whether the recipe was ever run on the real data."""
        return self.parquet_sha256 is not None


def get(name: str) -> Dataset:
    if name not in REGISTRY:
        near = get_close_matches(str(name).lower(), REGISTRY, n=3, cutoff=0.5)
        hint = f"Near it are: {', '.join(near)}. " if near else ""
        raise InvalidInputError(f"There is no data set {name!r}. {hint}All names: {', '.join(REGISTRY)}.")
    return REGISTRY[name]


def _uci(number: int, slug: str, **facts) -> Dataset:
    site = "https://archive.ics.uci.edu"
    page, url = f"{site}/dataset/{number}/{slug}", f"{site}/static/public/{number}/{slug}.zip"
    return Dataset(page=page, url=url, **({"parquet": f"{facts['name']}.parquet"} | facts))


def _numbered(name: str, count: int, first: int = 0) -> tuple[str, ...]:
    return tuple(f"{name}{number}" for number in range(first, first + count))


_KEGG_REASON = (
    "Left out by the paper: no documentation or literature says which column is the target, and exact Gaussian "
    "processes gave errors much higher than reported elsewhere."
)
_POWER_COLUMNS = (
    "Global_active_power", "Global_reactive_power", "Voltage", "Global_intensity",
    "Sub_metering_1", "Sub_metering_2", "Sub_metering_3",
)  # fmt: skip
_TERRAIN = (
    "Elevation", "Aspect", "Slope", "Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
)  # fmt: skip
_BUZZ = ("NCD", "AI", "AS(NA)", "BL", "NAC", "AS(NAC)", "CS", "AT", "NA", "ADL", "NAD")

_DATASETS = (
    _uci(
        189,
        "parkinsons+telemonitoring",
        name="poletele",
        title="Parkinson's telemonitoring",
        kind="paper",
        n=5_875,
        d=19,
        preparation="Target total_UPDRS; subject# and test_time are dropped.",
        citation="A. Tsanas, M. Little (2009). Parkinsons Telemonitoring. UCI. doi:10.24432/C5ZS3N",
        prepare=recipes.poletele,
        parquet="parkinsons_updrs.parquet",
        parquet_sha256="ff0028c14a8bc689fc03552e2f6177c9d6429e0660e23a0a2add3b37365eeaa4",
        member="parkinsons_updrs.data",
    ),
    _uci(
        275,
        "bike+sharing+dataset",
        name="bike",
        title="Bike sharing, hourly",
        kind="paper",
        n=17_379,
        d=13,
        preparation="Target cnt of hour.csv; dteday becomes the day of the month; instant, registered and casual are "
        "dropped.",
        citation="H. Fanaee-T (2013). Bike Sharing. UCI. doi:10.24432/C5W894",
        prepare=recipes.bike,
        parquet="bike_hour.parquet",
        parquet_sha256="3628486ac5db418662788eda7bdf9bd99789010f845a5f75bb62e198fee273da",
        member="hour.csv",
    ),
    _uci(
        265,
        "physicochemical+properties+of+protein+tertiary+structure",
        name="protein",
        title="Protein tertiary structure (CASP)",
        kind="paper",
        n=45_730,
        d=9,
        preparation="Target RMSD, the first column; all others are inputs.",
        citation="P. Rana (2013). Physicochemical Properties of Protein Tertiary Structure. UCI. doi:10.24432/C5QW3H",
        prepare=recipes.protein,
        parquet="protein_casp.parquet",
        parquet_sha256="ec8e53befffc06ca2990cf86c9d25243ce8ba511e7ea2b86cafdb2573c7c13c0",
        member="CASP.csv",
    ),
    _uci(
        206,
        "relative+location+of+ct+slices+on+axial+axis",
        name="ctslice",
        title="Location of CT slices",
        kind="paper",
        n=53_500,
        d=378,
        preparation="Target the last column; the first and the nearly constant columns 59, 69, 179, 189, 279 and 351 "
        "are dropped.",
        citation="F. Graf, H.-P. Kriegel, M. Schubert, S. Pölsterl, A. Cavallaro (2011). Relative location of CT "
        "slices on axial axis. UCI. doi:10.24432/C5CP6G",
        prepare=recipes.ctslice,
        member="slice_localization_data.csv",
    ),
    _uci(
        246,
        "3d+road+network+north+jutland+denmark",
        name="road3d",
        title="3D road network, North Jutland",
        kind="paper",
        n=434_874,
        d=2,
        preparation="Target the last column, altitude; the first, a road's number, is dropped.",
        citation="M. Kaul (2013). 3D Road Network (North Jutland, Denmark). UCI.",
        prepare=recipes.road3d,
        member="3D_spatial_network.txt",
        columns=("osm_id", "longitude", "latitude", "altitude"),
    ),
    _uci(
        203,
        "yearpredictionmsd",
        name="song",
        title="Year of a song",
        kind="paper",
        n=515_345,
        d=90,
        preparation="Target the first column, the year; all others are inputs.",
        citation="T. Bertin-Mahieux (2011). Year Prediction MSD. UCI. doi:10.24432/C50K61",
        prepare=recipes.song,
        member="YearPredictionMSD.txt",
        columns=("year", *_numbered("timbre_", 90)),
    ),
    _uci(
        235,
        "individual+household+electric+power+consumption",
        name="houseelectric",
        title="Electric power of a household",
        kind="paper",
        n=2_049_282,
        d=8,
        preparation="Target Global_active_power × 1000/60 less the three sub-meterings; the date becomes day of "
        "year/365, the time minutes of the day; rows with nulls are dropped.",
        citation="G. Hebrail, A. Berard (2006). Individual Household Electric Power Consumption. UCI. "
        "doi:10.24432/C58K54",
        prepare=recipes.houseelectric,
        parquet_sha256="c95a6d1feb571432ae4b645246e632ee1c643a1e5c1e8ae929c55b2dfaf516e8",
        member="household_power_consumption.txt",
        separator=";",
        types={"Date": "category", "Time": "category"} | dict.fromkeys(_POWER_COLUMNS, "float64"),
        tidy=recipes.houseelectric_raw,
    ),
    Dataset(
        name="britain_magnetic",
        title="Magnetic anomaly along flight lines over Britain",
        kind="stand-in",
        n=541_508,
        d=2,
        preparation="For Road3D: target total_field_anomaly_nt, inputs longitude and latitude.",
        citation="British Geological Survey. Airborne magnetic survey of Great Britain. Contains British Geological "
        "Survey materials © UKRI.",
        page="https://www.bgs.ac.uk/datasets/gb-aeromagnetic-survey/",
        licence="Open Government Licence v3",
        prepare=recipes.britain_magnetic,
        parquet="britain_magnetic.parquet",
        parquet_sha256="ae470f635faac45cdd4198d1defc534b811214e618b41023d971dff6ddba311a",
    ),
    _uci(
        31,
        "covertype",
        name="covtype",
        title="Terrain of forests in Colorado",
        kind="stand-in",
        n=581_012,
        d=53,
        preparation="For Song: target Elevation; Cover_Type is dropped.",
        citation="J. Blackard (1998). Covertype. UCI. doi:10.24432/C50K5N",
        prepare=recipes.covtype,
        parquet_sha256="d8a1de0e62258436e12edf8e018c7680a5ee3d8b72d9ff45835fad9c3727e08b",
        member="covtype.data",
        columns=(*_TERRAIN, *_numbered("Wilderness_Area", 4, 1), *_numbered("Soil_Type", 40, 1), "Cover_Type"),
    ),
    _uci(
        304,
        "blogfeedback",
        name="blogfeedback",
        title="Comments on blog posts",
        kind="stand-in",
        n=60_021,
        d=280,
        preparation="For CTSlice: target log(1 + last column), training and test files put together.",
        citation="K. Buza (2014). BlogFeedback. UCI. doi:10.24432/C58S3F",
        prepare=recipes.blogfeedback,
        parquet_sha256="5e8e930ec50b0378584a5f4ccceb9115388944e056134b1996f4f01c9dac4500",
        member="blogData_*.csv",
        columns=_numbered("", 281),
    ),
    Dataset(
        name="egm96_geoid",
        title="Height of the geoid EGM96, 15' grid",
        kind="stand-in",
        n=1_038_240,
        d=2,
        preparation="Almost without noise: target geoid_height_cm, inputs longitude and latitude.",
        citation="F. Lemoine et al. (1998). The development of the joint NASA GSFC and NIMA geopotential model EGM96. "
        "NASA/TP-1998-206861.",
        page="https://earth-info.nga.mil",
        licence="public domain",
        prepare=recipes.egm96_geoid,
        parquet="egm96_geoid.parquet",
        parquet_sha256="82736f91e63446d49cee0867d6178d6181cc426f1f48648ee8033b4664eb2c10",
    ),
    _uci(
        220,
        "kegg+metabolic+relation+network+directed",
        name="kegg_directed",
        title="KEGG metabolic relation network, directed",
        kind="left out",
        n=53_414,
        d=23,
        preparation=_KEGG_REASON,
        citation="M. Naeem, S. Asghar (2011). KEGG Metabolic Relation Network (Directed). UCI. doi:10.24432/C5CK52",
        member="Relation Network (Directed).data",
        columns=("pathway", *_numbered("x", 23, 1)),
    ),
    _uci(
        221,
        "kegg+metabolic+reaction+network+undirected",
        name="kegg_undirected",
        title="KEGG metabolic reaction network, undirected",
        kind="left out",
        n=65_554,
        d=28,
        preparation=_KEGG_REASON,
        citation="M. Naeem, S. Asghar (2011). KEGG Metabolic Reaction Network (Undirected). UCI.",
        member="Reaction Network (Undirected).data",
        columns=("pathway", *_numbered("x", 28, 1)),
    ),
    _uci(
        248,
        "buzz+in+social+media",
        name="buzz",
        title="Buzz in social media, Twitter",
        kind="left out",
        n=583_250,
        d=78,
        preparation="Left out by the paper: a few extremely large values of the target, the last column, distort "
        "results, and no documented rule says which of them others rejected.",
        citation="F. Kawala, A. Douzal, E. Gaussier, E. Diemert (2013). Buzz in social media. UCI. doi:10.24432/C56G6V",
        member="Twitter.data",
        columns=(*(name for feature in _BUZZ for name in _numbered(f"{feature}_", 7)), "Annotation"),
    ),
)

REGISTRY = {dataset.name: dataset for dataset in _DATASETS}
