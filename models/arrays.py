"""Array types of numpy with their dtype, such as `Float32`."""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
