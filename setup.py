"""The optional modules in C. Everything else about the package is in pyproject.toml."""

from setuptools import Extension, setup

# Threads come from the OpenMP that PyTorch brings, so it is not linked.
THREADS = ["-fopenmp"]

# OpenCV rounds products before it adds them: so does its twin. Only then may roundings be vectorized.
AS_OPENCV = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]


def compiled(name: str, source: str, arguments: list[str]) -> Extension:
    depends = ["c2d/nets/lanes.h"] if "nets" in source else []
    return Extension(name, [source], depends=depends, extra_compile_args=["-O3", *arguments], optional=True)


setup(
    ext_modules=[
        compiled("c2d.nets._kernels", "c2d/nets/kernels.c", THREADS),
        compiled("c2d.nets._dense", "c2d/nets/dense.c", THREADS),
        compiled("c2d.nets._convolution", "c2d/nets/convolution.c", THREADS),
        compiled("c2d.envs._screen", "c2d/envs/screen.c", AS_OPENCV),
    ]
)
