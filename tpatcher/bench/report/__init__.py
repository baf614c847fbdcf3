"""Do I know how results are shown? Tables, figures, and the page that holds them."""

from jinja2 import Environment, PackageLoader, select_autoescape

TEX = {"%": r"\%", "_": r"\_", "±": r"$\pm$", "–": "--", "β": r"$\beta$"}
TEMPLATES = Environment(
    loader=PackageLoader(__name__, ""),
    autoescape=select_autoescape(["html.j2"]),
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["percent"] = "{:.1%}".format
TEMPLATES.filters["tex"] = lambda text: text.translate(str.maketrans(TEX))
