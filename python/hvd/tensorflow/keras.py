"""``hvd.keras``, under the name that Horovod's programs import."""

from hvd.keras import *  # noqa: F403
from hvd.keras import __all__ as __all__
