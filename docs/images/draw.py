"""Draw the figures of README and the guide again: python docs/images/draw.py (with gpnn[docs], and the survey in the
data directory). `--guide` leaves README's out, which needs the survey."""

import runpy
import sys
from pathlib import Path

import matplotlib

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
README = {"plot_2_magnetic_map.py": "britain_magnetic.png"}
GUIDE = {
    "plot_5_why.py": "why.png",
    "plot_6_known_noise.py": "known_noise.png",
    "plot_b_target_scale.py": "target_scale.png",
    "plot_7_living.py": "living.png",
    "plot_8_several_targets.py": "several_targets.png",
    "plot_9_tomorrow.py": "tomorrow.png",
}

matplotlib.use("Agg")
for example, picture in (GUIDE if "--guide" in sys.argv else GUIDE | README).items():
    drawn = runpy.run_path(str(EXAMPLES / example))
    if drawn.get("source") == "made-up field":
        sys.exit("README shows the real survey, and it is not here: see gpnn datasets info britain_magnetic")
    drawn["figure"].savefig(
        HERE / picture, dpi=110 if picture in README.values() else 80, pil_kwargs={"optimize": True}
    )
