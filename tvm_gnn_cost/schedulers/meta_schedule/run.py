"""Runs NETWORK.so with TVM's runtime alone: python run.py [inputs.npz [outputs.npz]]. Without inputs it draws them."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

about = json.loads(Path(__file__).with_name("NETWORK.json").read_text())
cores = os.cpu_count() or 1
os.environ.setdefault("TVM_NUM_THREADS", str(min(about["threads"] or cores, cores)))  # TVM would take half
import tvm.relax  # noqa: E402

stderr = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # TVM prints a warning without content for each of the weights
try:
    library = tvm.runtime.load_module(str(Path(__file__).with_name("NETWORK.so")))
finally:
    os.dup2(stderr, 2)
machine = tvm.relax.VirtualMachine(library, tvm.cpu())
given = np.load(sys.argv[1]) if sys.argv[1:] else {i["name"]: np.random.random(i["shape"]) for i in about["inputs"]}
inputs = [tvm.runtime.tensor(np.asarray(given[i["name"]], i["dtype"])) for i in about["inputs"]]
results = machine["main"](*inputs)


def flat(output: Any) -> list[Any]:
    """The tensors of outputs that may be tuples in tuples."""
    return [output] if isinstance(output, tvm.runtime.Tensor) else [tensor for part in output for tensor in flat(part)]


outputs = {about["outputs"][i]["name"]: output.numpy() for i, output in enumerate(flat(results))}
print({name: (str(output.dtype), output.shape) for name, output in outputs.items()})
print(f"{machine.time_evaluator('main', tvm.cpu(), min_repeat_ms=500)(*inputs).mean * 1e3:.3f} ms")
if sys.argv[2:]:
    np.savez(sys.argv[2], **outputs)
