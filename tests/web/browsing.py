"""Ways around a page, for tests in a browser."""

import time


def until(page, expression, seconds=60.0):
    """The value of a JavaScript expression once it is true. The page's policy forbids the usual way, by eval."""
    end = time.monotonic() + seconds
    while not (value := page.evaluate(expression)):
        assert time.monotonic() < end, f"in vain: {expression}; {page.inner_text('body')[:500]}"
        page.wait_for_timeout(50)
    return value


def open_lens(server, page, **query):
    address = "&".join(f"{name}={value}" for name, value in query.items())
    page.goto(f"{server.url}/lens?{address}")
    until(page, "globalThis.lens?.stage?.shown")
