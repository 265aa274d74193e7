"""c2d serve: what it rejects, and when it admits other machines."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from c2d.cli.main import main
from c2d.cli.serve import ServeOptions, access_of, headline, listen
from c2d.errors import UserError


def error_line(words, capsys) -> str:
    assert main(["serve", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_bad_input_gets_one_line(tmp_path, capsys):
    assert "is not a directory" in error_line([str(tmp_path / "missing")], capsys)
    assert "accepted: 0 to 65535" in error_line([str(tmp_path), "--port", "70000"], capsys)
    assert "cannot listen" in error_line([str(tmp_path), "--host", "256.1.1.1"], capsys)
    assert "16 to 200" in error_line([str(tmp_path), "--host", "0.0.0.0", "--port", "0", "--token", "short"], capsys)
    assert "--token and --name" in error_line([str(tmp_path), "--port", "0", "--token", "x" * 20], capsys)


def test_a_port_that_is_taken(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "choose another --port" in error_line([str(tmp_path), "--port", str(taken.getsockname()[1])], capsys)


def test_a_local_host_needs_no_token_and_answers_only_to_its_names():
    access = access_of(ServeOptions(), 8265)
    assert access.token is None and not access.is_own_host(f"{socket.gethostname()}.example:8265")
    assert headline(ServeOptions(), access) == "c2d serve runs | open http://127.0.0.1:8265 | Ctrl-C stops it"


def test_a_public_host_always_gets_a_new_token():
    chosen = ServeOptions(host="0.0.0.0", name=("Lab.example.org",))
    first, second = access_of(chosen, 80), access_of(chosen, 80)
    assert first.token != second.token and len(first.token) >= 32
    assert (
        first.is_own_host("lab.example.org")
        and first.is_own_host("10.1.2.3:80")
        and not first.is_own_host("evil.example")
    )
    assert f"/?token={first.token} " in headline(chosen, first) and "not encrypted" in headline(chosen, first)
    assert access_of(ServeOptions(host="10.0.0.9", token="a" * 16), 80).token == "a" * 16


def test_listens_on_this_machine_only_by_default():
    with listen(ServeOptions().host, 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    with pytest.raises(UserError, match="cannot listen"):
        listen("no.such.host.invalid", 0)


def test_the_command_serves_and_ends_with_ctrl_c(tmp_path):
    process = subprocess.Popen([sys.executable, "-m", "c2d.cli.main", "serve", str(tmp_path), "--port", "0"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        line = process.stdout.readline()
        address = re.search(r"open (http://127\.0\.0\.1:\d+) ", line)[1]
        with urllib.request.urlopen(f"{address}/api/runs") as answer:
            assert answer.status == 200 and b'"rows":[]' in answer.read()
        request = urllib.request.Request(address, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request)
    finally:
        os.kill(process.pid, signal.SIGINT)
        _, complaints = process.communicate(timeout=120)
    assert process.returncode in (0, 130) and "Traceback" not in complaints


def test_the_server_does_not_load_torch(tmp_path):
    """It reads records; networks live in processes of their own."""
    code = (
        "import sys, c2d.config; from c2d.cli.serve import ServeOptions, access_of, server_config; "
        f"server_config(ServeOptions(runs={str(tmp_path)!r}), access_of(ServeOptions(), 1)); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
