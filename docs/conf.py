"""How the site is built: `make docs`. Nothing is fetched from the network, neither here nor by the reader's browser."""

import os
import re
import warnings
from itertools import pairwise
from pathlib import Path

import gpnn

ROOT = Path(__file__).parent.parent
os.environ.setdefault("TQDM_DISABLE", "1")
warnings.simplefilter("ignore", gpnn.GPnnWarning)

project, author = "gpnn", "the gpnn developers"
copyright = f"2026, {author}"
version = release = gpnn.__version__
html_title = f"gpnn {version}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.zip"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["gpnn.css"]
html_copy_source = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
pygments_style = "friendly"

# --- gallery ----------------------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 3600,  # seconds; below, a page says nothing of the machine that built it
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
    "image_srcset": ["2x"],
    "default_thumb_file": None,
}

# --- API --------------------------------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures are long enough; docstrings say what each argument means
autodoc_class_signature = "mixed"
default_role = "code"


def to_restructured_text(app, what, name, obj, options, lines: list[str]) -> None:
    """Sections "Parameters" and "Attributes", each entry `names : what they mean`, become definition lists."""
    text, in_section = [], False
    for line, after in pairwise([*lines, ""]):
        if set(after) == {"-"}:
            text += [f".. rubric:: {line}", ""]
            in_section = True
        elif set(line) == {"-"}:
            continue
        elif in_section and (entry := re.fullmatch(r"(\S.*?) : (.+)", line)):
            text += [", ".join(f"``{one}``" for one in entry[1].split(", ")), f"    {_escaped(entry[2])}"]
        else:
            in_section = in_section and bool(line)
            text.append(_escaped(line))
    lines[:] = text


def _escaped(line: str) -> str:
    """`params_` and |x| in running text are markup to reStructuredText, but names and mathematics to us."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"(?<=\w)_(?!\w)|\|", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def setup(app) -> None:
    app.connect("autodoc-process-docstring", to_restructured_text)
