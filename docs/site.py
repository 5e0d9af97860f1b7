#!/usr/bin/env python3
"""Builds the site in a folder, with mdBook, and checks its links.

    cargo doc --workspace --no-deps --lib && docs/site.py target/site target/doc

The pages are those of `SUMMARY.md`, each as `.html` and as `.md`; `llms.txt` lists the latter for programs that read. What `cargo doc`
has written is below `api`. The site has the folders of the repository, so links of pages to examples lead to the same files in both.
"""

import functools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urlsplit

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
# mdBook copies what is no page.
FILES = ["*.md", "docs", "examples", "template", "benches/sql", "scoop-audit/src/lib.rs"]


def summary():
    """The summary as seen from the root, where mdBook wants it."""
    text = (DOCS / "SUMMARY.md").read_text()
    return text.replace("](", "](docs/").replace("](docs/../", "](")


def build(site, api):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "src")
        listed = subprocess.run(["git", "ls-files", "-z", *FILES], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
        shutil.copy(DOCS / "book.toml", folder)
        (source / "SUMMARY.md").write_text(summary())
        subprocess.run(["mdbook", "build", "--dest-dir", site, folder], check=True)
        for page in source.rglob("*.md"):
            shutil.copy(page, site / page.relative_to(source))
    shutil.copytree(api, site / "api", ignore=shutil.ignore_patterns("*.json"))
    (site / "llms.txt").write_text(index())
    for page in site.rglob("*.html"):
        page.write_text(with_links_of_the_site(page.read_text(), "../" * (len(page.relative_to(site).parts) - 1)))


def with_links_of_the_site(html, root):
    """mdBook names the page of a README `index`, and that of the summary `toc`. Pages and API name each other by the addresses that
    they have after a release."""
    html = re.sub(r'(href="[^":]*)README\.html', r"\1index.html", html)
    html = html.replace('href="docs/SUMMARY.html"', 'href="toc.html"')
    html = re.sub(r"https://docs\.rs/crate/scoop-saga/latest/source/([a-z_/]+)\.md", rf"{root}\1.html", html)
    return re.sub(r"https://docs\.rs/scoop-[a-z]+/latest/", f"{root}api/", html)


def index():
    title, paragraph = (ROOT / "README.md").read_text().split("\n\n")[:2]
    _, pages = summary().split("\n\n", 1)
    pages = re.sub(r"^ +", "", re.sub(r"^# ", "## ", pages, flags=re.M), flags=re.M)
    return f"{title}\n\n> {' '.join(paragraph.split())}\n\n{pages}"


class Page(HTMLParser):
    """The links of a page, and the names of its parts."""

    def __init__(self, path):
        super().__init__()
        self.links, self.parts = set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.parts.add(value)


def broken_links(site):
    """The number of links, and those that lead nowhere. rustdoc checks the links within the API."""
    read = functools.cache(Page)
    count, broken = 0, []
    for path in sorted(site.rglob("*.html")):
        page = path.relative_to(site)
        if page.parts[0] == "api":
            continue
        for link in sorted(read(path).links):
            if urlsplit(link).scheme:
                continue
            name, part = urldefrag(link)
            target = (path.parent / unquote(name)).resolve() if name else path
            count += 1
            if not target.is_file():
                broken.append(f"{page}: no file for {link}")
            elif part and target.suffix == ".html" and unquote(part) not in read(target).parts:
                broken.append(f"{page}: no such part: {link}")
    return count, broken


if __name__ == "__main__":
    site, api = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    if site.exists():
        (site / "llms.txt").stat()  # Another folder stays as it is.
        shutil.rmtree(site)
    build(site, api)
    count, broken = broken_links(site)
    print(f"{count} links, {len(broken)} broken", *broken, sep="\n")
    sys.exit(bool(broken) or count == 0)
