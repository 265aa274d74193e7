"""dense.c: addresses of float32 memory, sizes, and threads. Only native.py calls these."""

INTERFACE: int

def dense(x: int, weight: int, bias: int, y: int, batch: int, inputs: int, outputs: int, threads: int, /) -> None: ...
def dense_backward(
    grad_transposed: int,
    x: int,
    weight: int,
    grad_x: int,
    grad_weight: int,
    grad_bias: int,
    batch: int,
    inputs: int,
    outputs: int,
    threads: int,
    /,
) -> None: ...
