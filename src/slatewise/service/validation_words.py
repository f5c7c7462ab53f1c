"""What pydantic finds wrong, in plain sentences: without its prefixes, class names and regular expressions."""

from collections.abc import Mapping
from typing import Any

OBJECT = "Input should be an object, with names and values"
BY_TYPE = dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type", "dict_type"), OBJECT)
PATTERNS = {
    r"^[^\x00]*$": "Text must not contain NUL",
    r"^[A-Za-z_][A-Za-z0-9_]{0,63}$": "A name must be 1 to 64 letters, digits and underscores, the first no digit",
}
"""What texts must be like, by the pattern that they do not match."""
OTHER_PATTERN = "Text is not of the expected form"


def in_words(error: Mapping[str, Any]) -> str:
    """Return what is wrong; `error` is one of `ValidationError.errors()`, with its context."""
    kind, text = error["type"], str(error["msg"])
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(error["ctx"]["pattern"], OTHER_PATTERN)
    return BY_TYPE.get(kind, text.replace("tuple", "list").replace("Tuple", "List").replace(" after validation", ""))


def within_a_sentence(text: str) -> str:
    """Return a message with a small first letter, for a place within a sentence."""
    return text[:1].lower() + text[1:]
