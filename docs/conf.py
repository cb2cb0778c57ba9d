"""How the site is built: `make docs`. Nothing is fetched from the network, neither here nor by the reader's browser."""

import os
import re
import warnings
from pathlib import Path

import gpnn

ROOT = Path(__file__).parent.parent
os.environ.setdefault("TQDM_DISABLE", "1")
warnings.simplefilter("ignore", gpnn.GPnnWarning)

project, author = "gpnn", "the gpnn developers"
version = release = gpnn.__version__
html_title = f"gpnn {version}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.zip"]
suppress_warnings = ["toc.not_readable"]  # of pages that are still being written

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["gpnn.css"]
html_copy_source = False

myst_enable_extensions = ["colon_fence"]
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
napoleon_google_docstring = False
napoleon_use_ivar = True
default_role = "code"


def escape_markup(app, what, name, obj, options, lines: list[str]) -> None:
    """`params_` and |x| in running text are markup to reStructuredText, but names and mathematics to us."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        parts[::2] = [re.sub(r"(?<=\w)_(?!\w)|\|", r"\\\g<0>", part) for part in parts[::2]]
        lines[number] = "`".join(parts)


def setup(app) -> None:
    app.connect("autodoc-process-docstring", escape_markup, priority=400)  # before napoleon
