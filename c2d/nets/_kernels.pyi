"""kernels.c: addresses of float32 (or u8) memory, sizes, and threads. Only native.py calls these."""

INTERFACE: int

def column_norm(
    x: int,
    y: int,
    rows: int,
    width: int,
    channels: int,
    weight: int,
    bias: int,
    eps: float,
    statistics: int,  # mean, variance, scale, shift: 4 × width
    running_mean: int,  # 0 leaves them as they are
    running_var: int,
    momentum: float,
    threads: int,
    /,
) -> None: ...
def column_norm_backward(
    grad: int,
    x: int,
    out: int,
    rows: int,
    width: int,
    channels: int,
    weight: int,
    statistics: int,
    eps: float,
    grad_weight: int,
    grad_bias: int,
    threads: int,
    /,
) -> None: ...
def running_norm(
    x: int, rows: int, width: int, channels: int, weight: int, bias: int, mean: int, var: int, eps: float, /
) -> None: ...
def channels_last(
    planes: int, out: int, pictures: int, channels: int, places: int, scale: float, threads: int, /
) -> None: ...
