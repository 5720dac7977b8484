"""What users write: typed objects, quantities, defaulting, validation, conversion, CRDs."""

from __future__ import annotations

from pykueue.api.decoding import DecodeError, decode_as, encode
from pykueue.api.kinds import KINDS, decode, kind_of

__all__ = ["KINDS", "DecodeError", "decode", "decode_as", "encode", "kind_of"]
