"""One world for this folder."""

from bad_input.strict import healthy, strict

__all__ = ["healthy", "strict"]
