"""Builds the documentation as a site: make docs. The pages of this folder and those beside it are its sources."""

project = "tvm_gnn_cost"
author = "The tvm_gnn_cost authors"
project_copyright = "the tvm_gnn_cost authors, Apache License 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# The sources begin at the root, so that links between pages lead where they lead in the repository.
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md", "benchmarks/LOG.md", "benchmarks/data/*/README.md"]
# Not even looked into.
exclude_patterns = [".*", "build", "work"]
root_doc = "docs/index"

myst_heading_anchors = 3
# A folder or a file without a page of its own; tests/test_docs.py checks that every link leads somewhere.
suppress_warnings = ["myst.xref_missing"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
# No page needs a TVM.
autodoc_mock_imports = ["tvm"]
napoleon_google_docstring = True
napoleon_use_ivar = True

html_theme = "furo"
html_title = "tvm_gnn_cost"
html_copy_source = False
