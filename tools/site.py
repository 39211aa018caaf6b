"""The documentation as a site: every page of docs/ as HTML in build/site, with what it links to. No outside host.

Run by ``make docs`` after the reference was written.
"""

from __future__ import annotations

import html
import re
import shutil
import sys
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
DOCS, SITE = ROOT / "docs", ROOT / "build" / "site"

STYLE = """
:root { color-scheme: light dark; --edge: #8884; --shade: #8881; --link: #0a6; }
body { margin: 0; font: 16px/1.6 system-ui, sans-serif; display: flex; flex-wrap: wrap; }
nav { flex: 0 0 15em; padding: 1.5em; box-sizing: border-box; border-right: 1px solid var(--edge); font-size: .9em; }
nav ul { list-style: none; padding-left: .8em; margin: .2em 0; }
nav > ul { padding-left: 0; }
main { flex: 1 1 30em; min-width: 0; max-width: 62em; padding: 1.5em 2.5em; box-sizing: border-box; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
a[aria-current] { font-weight: 600; color: inherit; }
pre { background: var(--shade); padding: .8em 1em; overflow: auto; border-radius: 6px; }
code { font: .9em ui-monospace, monospace; background: var(--shade); border-radius: 3px; padding: .05em .25em; }
pre code { background: none; padding: 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--edge); padding: .3em .7em; text-align: left; vertical-align: top; }
img { max-width: 100%; }
@media (max-width: 50em) { nav { flex-basis: 100%; border-right: 0; border-bottom: 1px solid var(--edge); } }
"""


def main() -> int:
    pages = sorted(DOCS.rglob("*.md"), key=_order)
    shutil.rmtree(SITE, ignore_errors=True)
    for page in pages:
        out = SITE / _target(page)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(render(page, pages), encoding="utf-8")
    for file in DOCS.rglob("*"):
        if file.is_file() and file.suffix != ".md":
            copy = SITE / file.relative_to(DOCS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    print(f"wrote {len(pages)} pages to {SITE.relative_to(ROOT)}: open {SITE.relative_to(ROOT)}/index.html")
    return 0


def render(page: Path, pages: list[Path]) -> str:
    """One page, with links to all others."""
    text = page.read_text(encoding="utf-8")
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = markdown.parse(text)
    used: set[str] = set()
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _anchor(tokens[number + 1].content, used))
        for child in token.children or ():
            _link(child)
    body = markdown.renderer.render(tokens, markdown.options, {})
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title(page))} · Millpond</title><style>{STYLE}</style>"
        f"<nav>{_menu(page, pages)}</nav><main>{body}</main></html>"
    )


def title(page: Path) -> str:
    first = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return first[1].strip("`") if first else page.stem


def _menu(page: Path, pages: list[Path]) -> str:
    up = "../" * (len(page.relative_to(DOCS).parts) - 1)
    lines, folder = ["<ul>"], Path()
    for other in pages:
        inside = other.relative_to(DOCS).parent
        if inside != folder:
            lines.append(("</ul>" if folder != Path() else "") + f"<li>{inside.name}<ul>")
            folder = inside
        here = " aria-current=page" if other == page else ""
        lines.append(f"<li><a href='{up}{_target(other)}'{here}>{html.escape(title(other))}</a>")
    return "\n".join(lines) + "</ul>" * (2 if folder != Path() else 1)


def _target(page: Path) -> Path:
    path = page.relative_to(DOCS)
    return path.with_name("index.html") if path.stem == "README" else path.with_suffix(".html")


def _link(token: Token) -> None:
    """Links to pages are links to their HTML."""
    target = str(token.attrGet("href") or "") if token.type == "link_open" else ""
    if target and "://" not in target:
        path, mark, anchor = target.partition("#")
        path = re.sub(r"README\.md$", "index.html", path)
        token.attrSet("href", re.sub(r"\.md$", ".html", path) + mark + anchor)


def _anchor(heading: str, used: set[str]) -> str:
    """As the pages' own links have it: lower case, words joined by hyphens."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    plain = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
    name, number = plain, 0
    while name in used:
        number += 1
        name = f"{plain}-{number}"
    used.add(name)
    return name


def _order(page: Path) -> tuple[object, ...]:
    path = page.relative_to(DOCS)
    first = ["README", "tutorial", "howto", "cli", "python", "http", "limits", "reliability", "benchmarks"]
    place = first.index(path.stem) if len(path.parts) == 1 and path.stem in first else len(first)
    return len(path.parts) > 1, path.parent.as_posix(), place, path.name


if __name__ == "__main__":
    sys.exit(main())
