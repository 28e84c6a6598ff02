"""The API reference's page of the public package, from the source alone."""

from pathlib import Path

import minerva
from mathdoc.extract import package_sources
from mathdoc.pages.api import api_page, re_exported

PACKAGE = Path(minerva.__file__).parent


def test_the_page_of_the_package_has_every_public_name_and_nothing_else() -> None:
    sources = package_sources(PACKAGE)
    (package,) = (source for source in sources if source.module == "minerva")
    public = re_exported(package, sources, "minerva")
    blocks = api_page(package, "minerva/__init__.py", private=False, public=public)
    headings = [block.removeprefix("### ") for block in blocks if block.startswith("### ")]
    assert sorted(headings) == minerva.__all__
    example = next(block for block in blocks if "minerva.train(" in block)
    assert "```python\nimport minerva\n" in example
    assert not any(block.startswith("##### \\__") or "##### _" in block for block in blocks if "init" not in block)
