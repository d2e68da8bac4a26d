"""Runs NETWORK.so with TVM's runtime alone: python run.py [inputs.npz [outputs.npz]]. Without inputs it draws them."""

import json
import os
import sys
from pathlib import Path

import numpy as np

about = json.loads(Path(__file__).with_name("NETWORK.json").read_text())
cores = os.cpu_count() or 1
os.environ.setdefault("TVM_NUM_THREADS", str(min(about["threads"] or cores, cores)))  # TVM would take half
import tvm.contrib.graph_executor  # noqa: E402

library = tvm.runtime.load_module(str(Path(__file__).with_name("NETWORK.so")))
executor = tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu()))
given = np.load(sys.argv[1]) if sys.argv[1:] else {i["name"]: np.random.random(i["shape"]) for i in about["inputs"]}
executor.set_input(**{i["name"]: np.asarray(given[i["name"]], i["dtype"]) for i in about["inputs"]})
executor.run()
outputs = {output["name"]: executor.get_output(i).numpy() for i, output in enumerate(about["outputs"])}
print({name: (str(output.dtype), output.shape) for name, output in outputs.items()})
print(f"{executor.module.time_evaluator('run', tvm.cpu(), min_repeat_ms=500)().mean * 1e3:.3f} ms")
if sys.argv[2:]:
    np.savez(sys.argv[2], **outputs)
