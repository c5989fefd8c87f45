"""wandb offline and MLflow with a file for a database: runs are logged, models saved and loaded."""

import os
import sys
import warnings

os.environ |= {
    "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": ".", "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "true",
    "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db", "GIT_PYTHON_REFRESH": "quiet", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true",
}
warnings.filterwarnings("ignore")

import mlflow  # noqa: E402
import mlflow.pytorch  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import wandb  # noqa: E402
from told import on_graphc, own, tell  # noqa: E402
from torch import nn  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


def trained(log):
    torch.manual_seed(0)
    model = Net()
    x, y = torch.randn(32, 4), torch.randint(0, 2, (32,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(5):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log(step, loss)
        losses.append(loss.item())
    return model.eval(), x, losses


# --- wandb -----------------------------------------------------------------------------------

if "--no-wandb" not in sys.argv:
    run = wandb.init(project="p", config={"lr": 0.01, "width": torch.tensor(8)})
    watched = Net()
    run.watch(watched, log="all", log_freq=1, log_graph=True)
    watched(torch.randn(3, 4)).sum().backward()

    def log(step, loss):
        run.log({
            "loss": loss, "item": loss.item(), "vector": wandb.Histogram(torch.randn(50)),
            "tensor": torch.arange(20.0), "image": wandb.Image(torch.rand(3, 8, 9), caption="c"),
            "half": loss.detach().bfloat16(),
        })

    model, x, losses = trained(log)
    table = wandb.Table(columns=["x", "y"], data=[[1, torch.tensor(2.0)], [3, torch.tensor(4.0)]])
    run.log({"table": table})
    torch.save(model.state_dict(), "model.pt")
    artifact = wandb.Artifact("model", type="model")
    artifact.add_file("model.pt")
    run.log_artifact(artifact)
    tell("wandb losses", losses, 1e-4)
    tell("wandb summary", [run.summary["loss"], run.summary["item"]], 1e-4)
    tell("wandb tensor", run.summary["tensor"], 1e-4)
    tell("wandb config", {k: str(v) for k, v in run.config.items()})
    tell("wandb image", [run.summary["image"]["width"], run.summary["image"]["height"]])
    run.unwatch()
    run.finish()
    tell("wandb's folder", any(name.startswith("offline-run") for name in os.listdir("wandb")))

# --- MLflow ----------------------------------------------------------------------------------

mlflow.set_experiment("e")
with mlflow.start_run() as run:
    mlflow.log_params({"lr": 0.01, "width": 8})
    model, x, losses = trained(lambda step, loss: mlflow.log_metric("loss", loss.item(), step=step))
    mlflow.log_metric("tensor", torch.tensor(2.5))
    with torch.no_grad():
        want = model(x)
    signature = mlflow.models.infer_signature(x.numpy(), want.numpy())
    mlflow.log_text(str(model), "model.txt")
    mlflow.log_dict({"losses": losses}, "losses.json")
    pickled = mlflow.pytorch.log_model(model, name="pickled", serialization_format="pickle", signature=signature, pip_requirements=["numpy"])
    example = x[:3].numpy()
    exported = mlflow.pytorch.log_model(model, name="exported", serialization_format="pt2", signature=signature, input_example=example, pip_requirements=["numpy"])
    mlflow.pytorch.log_state_dict(model.state_dict(), "state")
client = mlflow.tracking.MlflowClient()
tell("mlflow losses", [metric.value for metric in client.get_metric_history(run.info.run_id, "loss")], 1e-4)
tell("mlflow run", [client.get_run(run.info.run_id).data.params, client.get_run(run.info.run_id).data.metrics["tensor"]])
for name, info in (("pickled", pickled), ("exported", exported)):
    loaded = mlflow.pytorch.load_model(info.model_uri)
    with torch.no_grad():
        tell(name, [loaded(x[:n]) for n in (2, 5)], 1e-4)
        if on_graphc() or name == "pickled":
            tell(f"{name}, one row", (loaded(x[:1]) - want[:1]).abs().max().item() < 1e-5)
        else:
            tell(f"{name}, one row", True)
    predicted = mlflow.pyfunc.load_model(info.model_uri).predict(x.numpy())
    tell(f"{name}, predict", np.asarray(predicted)[:4], 1e-4)
state = mlflow.pytorch.load_state_dict(f"runs:/{run.info.run_id}/state")
tell("state", {key: value.sum() for key, value in state.items()}, 1e-4)
mlflow.pytorch.save_model(model, "saved", serialization_format="pickle")  # what it needs, MLflow finds out
with torch.no_grad():
    tell("saved", mlflow.pytorch.load_model("saved")(x[:2]), 1e-4)
with open("saved/requirements.txt") as file:
    tell("requirements", any(line.startswith("torch==2.13.0") for line in file))
if on_graphc():
    # of one row: PyTorch's export refuses it
    mlflow.pytorch.save_model(model, "one", serialization_format="pt2", input_example=x[:1].numpy(), signature=signature, pip_requirements=["numpy"])
    one = mlflow.pytorch.load_model("one")
    own("exported from one row", [(one(x[:n]) - want[:n]).abs().max().item() < 1e-5 for n in (1, 2, 7)])

# --- MLflow with a folder of files, as older programs have it --------------------------------

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
mlflow.set_tracking_uri("file:./files")
mlflow.set_experiment("of files")
with mlflow.start_run() as run:
    model, x, losses = trained(lambda step, loss: mlflow.log_metric("loss", loss.item(), step=step))
    mlflow.log_metrics({"last": losses[-1], "first": losses[0]})
    kept = mlflow.pytorch.log_model(model, name="kept", serialization_format="pickle", pip_requirements=["numpy"])
client = mlflow.tracking.MlflowClient()
tell("mlflow files: losses", [metric.value for metric in client.get_metric_history(run.info.run_id, "loss")], 1e-4)
tell("mlflow files: last", client.get_run(run.info.run_id).data.metrics["last"], 1e-4)
with torch.no_grad():
    tell("mlflow files: model", mlflow.pytorch.load_model(kept.model_uri)(x[:3]), 1e-4)
