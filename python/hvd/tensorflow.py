"""Not there yet: importing it says what is."""

raise ImportError(
    "there is no hvd.tensorflow: hvd has no module for TensorFlow yet. There are hvd.torch, "
    "hvd.jax, hvd.mxnet, hvd.keras for Keras 3 on PyTorch and JAX, and hvd itself for NumPy: "
    "hvd.allreduce(), hvd.broadcast() and others take what numpy.asarray() makes of a tensor of "
    "TensorFlow, and give a new array",
    name=__name__,
)
