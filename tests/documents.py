"""What commands print as JSON, held to the published schema."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import jsonschema

SCHEMA = json.loads(resources.files("mtpfix").joinpath("output/schema_v1.json").read_text("utf-8"))


@cache
def validator(definition: str) -> Any:
    """Of the whole schema, or of one of its definitions; made once, since checking the schema itself takes long."""
    schema = {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{definition}"}]} if definition else SCHEMA
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def valid(text: str, definition: str) -> Any:
    """The document; it must be what the schema says of it, in a whole line."""
    assert text.endswith("\n")
    document = json.loads(text)
    assert {"$ref": f"#/$defs/{definition}"} in SCHEMA["anyOf"]  # so that the whole schema holds too
    validator(definition).validate(document)
    return document
