"""The decisions: pure, synchronous, deterministic. No I/O, no clock, no asyncio."""
