INTERFACE: int

def forward(
    x: int,
    y: int,
    rows: int,
    width: int,
    channels: int,
    weight: int,
    bias: int,
    eps: float,
    statistics: int,
    threads: int,
) -> None: ...
def backward(
    grad: int,
    x: int,
    grad_x: int,
    rows: int,
    width: int,
    channels: int,
    weight: int,
    statistics: int,
    eps: float,
    grad_weight: int,
    grad_bias: int,
    threads: int,
) -> None: ...
