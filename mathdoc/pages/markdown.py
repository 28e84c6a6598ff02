"""Hand-written Markdown: the formulas between dollars, rendered when the site is built."""

import re

from mathdoc.katex import render

CODE = re.compile(r"(^```.*?^```$|^\$\$\n.*?\n\$\$$|`[^`\n]*`|<[^>\n]*>)", flags=re.DOTALL | re.MULTILINE)


def rendered(text: str) -> str:
    """The page with `$...$` and `$$` blocks as HTML and MathML; code is left alone."""
    parts = CODE.split(text)
    for at, part in enumerate(parts):
        if part.startswith("$$"):
            parts[at] = f'<div class="display" tabindex="0">{render(part.strip("$").strip())}</div>'
        elif not part.startswith(("`", "<")):
            parts[at] = re.sub(r"\$([^$\n]+)\$", lambda found: render(found[1], display=False), part)
    return "".join(parts)
