"""The types in which floating-point elements travel."""


class Compression:
    """For the argument ``compression``. What is narrower on its way is rounded there."""

    none = 0
    fp16 = 1
    bf16 = 2
