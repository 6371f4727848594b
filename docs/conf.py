"""How the site is built: ``python -m sphinx -W -b html docs build/site``.

Sphinx with MyST (pages are Markdown, as readable on a code host as here) and Furo. Nothing is fetched, neither to build
nor to read it: no fonts, no scripts, and formulas are plain text.
"""

import os
import sys
from pathlib import Path

# The option lists import the programs; that must not take an accelerator away from anybody.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parent)]

import isvs  # noqa: E402 (after the path is set)

project = "isvs"
author = "the isvs contributors"
release = isvs.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "command_help"]
# `-W` makes errors of these: links to pages and headings that are not there, pages that no list names.
myst_heading_anchors = 3
highlight_language = "text"  # of indented blocks, which are formulas
default_role = "literal"  # docstrings write names in single backquotes
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the signature has the types
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"isvs {release}"
html_copy_source = False
html_show_sphinx = False
