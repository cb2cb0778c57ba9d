"""Draw README's figure again: python docs/images/draw.py (with gpnn[docs], and the survey in the data directory)."""

import runpy
import sys
from pathlib import Path

import matplotlib

HERE = Path(__file__).parent
matplotlib.use("Agg")
drawn = runpy.run_path(str(HERE.parent.parent / "examples" / "plot_2_magnetic_map.py"))
if drawn["source"] == "made-up field":
    sys.exit("README shows the real survey, and it is not here: see gpnn datasets info britain_magnetic")
drawn["figure"].savefig(HERE / "britain_magnetic.png", dpi=110, pil_kwargs={"optimize": True})
