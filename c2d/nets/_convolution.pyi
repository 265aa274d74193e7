"""convolution.c: addresses of float32 memory, sizes, and threads. Only native.py calls this."""

INTERFACE: int

def gradients(
    grad: int,
    x: int,
    weight: int,
    grad_x: int,
    grad_weight: int,
    grad_bias: int,
    pictures: int,
    height: int,
    width: int,
    channels: int,
    rows: int,
    columns: int,
    outputs: int,
    kernel: int,
    stride: int,
    threads: int,
    /,
) -> None: ...
