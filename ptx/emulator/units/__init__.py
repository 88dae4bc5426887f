"""Facts of the hardware units as pure functions: tensor maps, swizzles, descriptors, fragments, narrow floats."""
