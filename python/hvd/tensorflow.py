"""Not there yet: importing it says what is."""

from ._frameworks import missing

raise missing(__name__, "TensorFlow")
