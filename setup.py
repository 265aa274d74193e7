"""The optional C module. Everything else about the package is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "c2d.native._column_norm",
            ["c2d/native/column_norm.c"],
            extra_compile_args=["-O3", "-fopenmp"],  # threads come from the OpenMP that PyTorch loads: not linked
            optional=True,
        )
    ]
)
