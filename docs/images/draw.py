"""Draw the pages' figures again: python docs/images/draw.py (with gpnn[docs], and the survey in the data directory)."""

import runpy
import sys
from pathlib import Path

import matplotlib

HERE = Path(__file__).parent
FIGURES = {"plot_2_magnetic_map.py": "britain_magnetic.png", "plot_5_tomorrow.py": "tomorrow.png"}

matplotlib.use("Agg")
for example, picture in FIGURES.items():
    drawn = runpy.run_path(str(HERE.parent.parent / "examples" / example))
    if drawn.get("source") == "made-up field":
        sys.exit("README shows the real survey, and it is not here: see gpnn datasets info britain_magnetic")
    drawn["figure"].savefig(HERE / picture, dpi=110, pil_kwargs={"optimize": True})
