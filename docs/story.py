"""The page "The whole story" of the site: story.ipynb as Markdown, with the outputs it keeps."""

from pathlib import Path
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files

NOTEBOOK = Path(__file__).with_name("story.ipynb")


def on_files(files: Files, config: Any) -> Files:
    """Add the page (a hook of MkDocs)."""
    files.append(File.generated(config, "story.md", content=page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the notebook, which a checkout has, lead to the page."""
    return markdown.replace("(story.ipynb)", "(story.md)")


def page() -> str:
    """The notebook's cells, one after the other."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    return "\n\n".join(part for cell in cells for part in parts(cell))


def parts(cell: Any) -> list[str]:
    """A cell as Markdown: its text, or its code and what that printed and drew."""
    if cell.cell_type == "markdown":
        return [cell.source]
    printed = "".join(o.text for o in cell.outputs if o.output_type == "stream")
    found = [f"```python\n{cell.source}\n```"]
    if printed:
        found.append(f"```text\n{printed.rstrip()}\n```")
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" in data:  # inside the page: nothing is loaded from elsewhere
            found.append(f"![](data:image/png;base64,{data['image/png'].strip()})")
        elif output.output_type == "execute_result":
            found.append(f"```text\n{data['text/plain']}\n```")
    return found
