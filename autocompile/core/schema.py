"""The JSON Schema of the document."""

from __future__ import annotations

import json

import msgspec

from autocompile.core.document import Document


def document_schema() -> str:
    """Return the JSON Schema (2020-12) of `Document`, as text without a final newline."""
    described = msgspec.json.schema(Document)
    titled = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "autocompile recommendation"}
    return json.dumps({**titled, **described}, indent=2)
