"""The words for frameworks of Horovod that hvd has no module for."""


def missing(module: str, framework: str) -> ImportError:
    """The error of ``import hvd.tensorflow`` and its like."""
    return ImportError(
        f"there is no {module}: hvd has no module for {framework} yet. There are hvd.torch for "
        "PyTorch, and hvd itself for NumPy's arrays: hvd.allreduce(), hvd.broadcast() and others "
        f"take what numpy.asarray() makes of a tensor of {framework}, and give a new array",
        name=module,
    )
