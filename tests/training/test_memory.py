"""Memory that large tensors use again and again stays with the process, in large pages."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from pathlib import Path
from c2d.training.memory import keep_memory
torch.set_num_threads(1)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for size in (3, 5, 2, 31, 4) * 20:
        torch.zeros(size << 18)  # megabytes, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def large_pages():
    heap = Path("/proc/self/smaps").read_text().partition("[heap]")[2]
    return " hg" in heap.partition("VmFlags:")[2].partition("\\n")[0]

assert not large_pages()
assert keep_memory() and keep_memory()
faults()
print(faults(), large_pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arranges glibc only; elsewhere nothing is done")
def test_few_page_faults_and_large_pages():
    answer = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout.split()
    assert int(answer[0]) < 50  # 900 MB in 4 kB pages would be 230,000
    assert answer[1] == "True"
