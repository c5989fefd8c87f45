"""LitServe: a compiled model behind its server, asked over HTTP, with and without batches."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import torch
from told import tell

SERVER = """
import sys
import litserve
import torch
from torch import nn


class Api(litserve.LitAPI):
    def setup(self, device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
        self.model = torch.compile(model)

    def decode_request(self, request):
        return torch.tensor(request["input"])

    def predict(self, x):
        with torch.no_grad():
            return self.model(x)

    def encode_response(self, output):
        return {"output": output.tolist()}


if __name__ == "__main__":
    size = int(sys.argv[2])
    options = {"max_batch_size": size, "batch_timeout": 0.02} if size > 1 else {}
    litserve.LitServer(Api(**options), accelerator="cpu").run(port=int(sys.argv[1]), host="127.0.0.1", generate_client_file=False, log_level="error")
"""
with open("server.py", "w") as file:
    file.write(SERVER)


def ask(port, rows):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/predict", json.dumps({"input": rows}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["output"]


for size in (1, 4):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = open(f"server{size}.log", "w")
    server = subprocess.Popen([sys.executable, "server.py", str(port), str(size)], stdout=log, stderr=log)
    try:
        generator = torch.Generator().manual_seed(1)
        rows = torch.rand(12, 4, generator=generator).tolist()
        for _ in range(240):
            try:
                ask(port, rows[0])
                break
            except OSError:
                if server.poll() is not None:
                    raise SystemExit(open(f"server{size}.log").read()) from None
                time.sleep(0.5)
        with ThreadPoolExecutor(4) as pool:
            tell(f"answers, batches of {size}", list(pool.map(lambda row: ask(port, row), rows)), 1e-4)
    finally:
        server.terminate()
        server.wait(30)
