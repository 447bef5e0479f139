# The frameworks whose tensors the tests of all collectives go through: how a test makes a tensor of
# an array, and gets an array of a tensor. Those that are not installed are left out.
import importlib

import numpy as np

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "float32", "float64")


class Arrays:
    module = "hvd"
    integers = (*INTEGERS, "uint16")
    floats = FLOATS
    can_change = True  # in place
    strange = "complex64"  # a type that hvd cannot send

    def __init__(self):
        self.hvd = importlib.import_module(self.module)

    def __repr__(self):
        return self.module

    def make(self, array, dtype=None):
        return np.array(array, dtype)

    def array_of(self, tensor):
        """Its elements as float64, which holds every number of these tests."""
        return np.asarray(tensor).astype(np.float64)

    def type_of(self, tensor):
        return tensor.dtype.name


class Torch(Arrays):
    module = "hvd.torch"
    integers = INTEGERS
    floats = (*FLOATS, "bfloat16")

    def __init__(self):
        super().__init__()
        self.torch = importlib.import_module("torch")

    def make(self, array, dtype=None):
        tensor = self.torch.from_numpy(np.array(array))
        return tensor if dtype is None else tensor.to(getattr(self.torch, dtype))

    def array_of(self, tensor):
        return tensor.detach().to(self.torch.float64).numpy()

    def type_of(self, tensor):
        return str(tensor.dtype).removeprefix("torch.")


class Jax(Arrays):
    module = "hvd.jax"
    floats = (*FLOATS, "bfloat16")
    can_change = False

    def __init__(self):
        super().__init__()
        importlib.import_module("jax").config.update("jax_enable_x64", True)
        self.numpy = importlib.import_module("jax.numpy")

    def make(self, array, dtype=None):
        return self.numpy.asarray(np.asarray(array), dtype)


class TensorFlow(Arrays):
    module = "hvd.tensorflow"
    floats = (*FLOATS, "bfloat16")
    can_change = False

    def __init__(self):
        super().__init__()
        self.tensorflow = importlib.import_module("tensorflow")

    def make(self, array, dtype=None):
        tensor = self.tensorflow.constant(np.asarray(array))
        return tensor if dtype is None else self.tensorflow.cast(tensor, dtype)

    def array_of(self, tensor):
        return self.tensorflow.cast(tensor, "float64").numpy()


class TracedTensorFlow(TensorFlow):
    """The same calls, each in a function that TensorFlow traces."""

    def __init__(self):
        super().__init__()
        self.hvd = _Traced(self.hvd, self.tensorflow.function)

    def __repr__(self):
        return "tf.function"


class _Traced:
    def __init__(self, module, trace):
        self._module = module
        self._trace = trace

    def __getattr__(self, name):
        function = getattr(self._module, name)
        if not hasattr(self._module, f"{name}_async"):
            return function

        def call(*arguments, **options):
            traced = self._trace(lambda: function(*arguments, **options), autograph=False)
            return self._module.elastic.raises_failures_of_hvd(traced)()

        return call


class MxNet(Arrays):
    module = "hvd.mxnet"
    integers = ("uint8", "int8", "int32", "int64")
    strange = None  # it has none

    def __init__(self):
        super().__init__()
        self.mxnet = importlib.import_module("mxnet")

    def make(self, array, dtype=None):
        array = np.asarray(array)
        return self.mxnet.nd.array(array, dtype=array.dtype if dtype is None else dtype)

    def array_of(self, tensor):
        return tensor.asnumpy().astype(np.float64)

    def type_of(self, tensor):
        return np.dtype(tensor.dtype).name


def installed():
    found = []
    for adapter in (Arrays, Torch, Jax, MxNet, TensorFlow, TracedTensorFlow):
        try:
            found.append(adapter())
        except ImportError:
            continue
    return found
