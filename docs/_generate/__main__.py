"""`python -m docs._generate` writes the parts of pages that are made from the code."""

from docs._generate import pages

for page, text in pages.files().items():
    page.write_text(text)
