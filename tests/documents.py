"""What commands print as JSON, held to the published schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema

SCHEMA = json.loads(resources.files("mtpfix").joinpath("output/schema_v1.json").read_text("utf-8"))


def valid(text: str, definition: str) -> Any:
    """The document; it must be what the schema says of it, in a whole line."""
    assert text.endswith("\n")
    document = json.loads(text)
    jsonschema.validate(document, SCHEMA)
    jsonschema.validate(document, {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{definition}"}]})
    return document
