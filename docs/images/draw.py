"""Draw the figures of README and the guide again: python docs/images/draw.py (with gpnn[docs], and the survey in the
data directory). `--guide` leaves README's out, which needs the survey."""

import runpy
import sys
from pathlib import Path

import matplotlib

HERE = Path(__file__).parent
matplotlib.use("Agg")
GUIDE = {
    "plot_5_why.py": "why.png",
    "plot_6_known_noise.py": "known_noise.png",
    "plot_7_living.py": "living.png",
    "plot_8_several_targets.py": "several_targets.png",
}
EXAMPLES = HERE.parent.parent / "examples"
for example, picture in GUIDE.items():
    runpy.run_path(str(EXAMPLES / example))["figure"].savefig(HERE / picture, dpi=80, pil_kwargs={"optimize": True})
if "--guide" in sys.argv:
    sys.exit()
drawn = runpy.run_path(str(EXAMPLES / "plot_2_magnetic_map.py"))
if drawn["source"] == "made-up field":
    sys.exit("README shows the real survey, and it is not here: see gpnn datasets info britain_magnetic")
drawn["figure"].savefig(HERE / "britain_magnetic.png", dpi=110, pil_kwargs={"optimize": True})
