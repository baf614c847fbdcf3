"""The page at `/docs`: the API as its OpenAPI schema describes it, without a script."""

from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: light-dark(#222, #ddd); background: light-dark(#fff, #181818); color-scheme: light dark; }
section { border-top: 1px solid #8886; } h2 { font-size: 1rem; } code { font-size: .9rem; }
table { border-collapse: collapse; } td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
"""


def render(schema: dict[str, Any]) -> str:
    """The routes, what each takes and what it gives."""
    about = schema["info"]
    routes = [
        _route(f"{method.upper()} {path}", route, schema)
        for path, methods in schema["paths"].items()
        for method, route in methods.items()
    ]
    title = escape(f"{about['title']} {about['version']}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><h1>{title}</h1><p>{escape(about.get('description', ''))}</p>"
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>'
        + "".join(routes)
        + "</html>"
    )


def _route(name: str, route: dict[str, Any], schema: dict[str, Any]) -> str:
    rows = [
        (f"{one['name']} ({one['in']})", _type(one["schema"]))
        for one in route.get("parameters", ())
    ]
    body = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    if name_of := _type(body.get("schema", {})):
        fields = schema["components"]["schemas"].get(name_of, {})
        needed = fields.get("required", ())
        rows += [
            (f"{field}{'' if field in needed else ', optional'}", _type(one))
            for field, one in fields.get("properties", {}).items()
        ]
    cells = "".join(
        f"<tr><td><code>{escape(what)}</code></td><td>{escape(kind)}</td></tr>"
        for what, kind in rows
    )
    statuses = ", ".join(sorted(route["responses"]))
    return (
        f"<section><h2><code>{escape(name)}</code></h2><p>{escape(route.get('description', ''))}"
        f"</p><table>{cells}</table><p>Status: {escape(statuses)}</p></section>"
    )


def _type(schema: dict[str, Any]) -> str:
    """What a value is, in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if kinds := schema.get("anyOf"):
        return " or ".join(_type(one) for one in kinds)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", schema.get("const", "")))
