"""The two optional modules in C. Everything else about the package is in pyproject.toml."""

import sys

from setuptools import Extension, setup

# Threads come from the OpenMP that PyTorch brings, so it is not linked; Apple's compiler has none.
THREADS = ["-fopenmp"] if sys.platform == "linux" else []

# OpenCV rounds products before it adds them: so does its twin. Only then may roundings be vectorized.
AS_OPENCV = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]

setup(
    ext_modules=[
        Extension("c2d.nets._kernels", ["c2d/nets/kernels.c"], extra_compile_args=["-O3", *THREADS], optional=True),
        Extension("c2d.envs._screen", ["c2d/envs/screen.c"], extra_compile_args=["-O3", *AS_OPENCV], optional=True),
    ]
)
