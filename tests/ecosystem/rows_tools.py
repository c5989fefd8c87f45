"""Tools beside a training: TensorBoard, Visdom, metrics, tables, scikit-learn, trackers, more."""

from __future__ import annotations

from tests.ecosystem.matrix import Row

BOARD = (
    "tensorboard==2.21.0", "tensorboardX==2.6.5", "matplotlib==3.11.2", "pillow==13.0.0",
    "setuptools==79.0.1",
)
METRICS = (
    "torchmetrics==1.9.0", "torchinfo==1.8.0", "torchsummary==1.5.1", "einops==0.8.2",
    "skorch==1.4.0", "scikit-learn==1.9.1", "safetensors==0.8.0", "tensorboard==2.21.0",
    "pytest==9.2.0",
    "setuptools==79.0.1",
)
IMAGES = (
    "kornia==0.9.0", "segmentation-models-pytorch==0.6.0", "torchdiffeq==0.2.5",
    "torchvision==0.28.0",
)

# PyTorch's side compares numbers alone, and goes without a C++ compiler
AS_WRITTEN = {"TORCH_COMPILE_DISABLE": "1"}

ROWS = [
    Row(
        "tb_writer", BOARD, "SummaryWriter's every method, message by message; hparams, projector "
        "files, errors; tensorboardX beside it",
    ),
    Row(
        "board_alone", ("tensorboard==2.21.0", "pillow==13.0.0", "setuptools==79.0.1"),
        "SummaryWriter where tensorboardX is not installed",
    ),
    Row(
        "tb_server", BOARD, "the real TensorBoard server over HTTP: scalars, histograms, graph, "
        "curves, images, text, audio, mesh, projector with sprites, hparams, custom scalars",
    ),
    Row(
        "visdom_windows", ("visdom==0.2.4", "setuptools==79.0.1"),
        "every plot of Visdom on its real server, appended to, read back, saved",
    ),
    Row(
        "metrics_of_tasks", METRICS, "torchmetrics: 150 metrics in batches and at once, pickled, "
        "reset, saved; collections, wrappers, one's own, in a model, as a loss, compiled",
        environment=AS_WRITTEN,
    ),
    Row("model_tables", METRICS, "torchinfo's and torchsummary's tables of nine models, as text"),
    Row(
        "einops_layers", METRICS, "einops: operations, packing, einsum, layers, compiled",
        environment=AS_WRITTEN,
    ),
    Row(
        "einops_suite", METRICS, "einops' own tests",
    ),
    Row(
        "sk_pipelines", METRICS, "skorch: classifiers and regressors, Pipeline, GridSearchCV, "
        "cross-validation, callbacks, checkpoints, pickles, safetensors, compile=True",
        environment=AS_WRITTEN,
    ),
    Row(
        "gp_models", ("gpytorch==1.15.2",), "gpytorch: exact, variational, multitask; kernels, "
        "likelihoods, samples, priors; linear_operator",
    ),
    Row(
        "images_and_odes", IMAGES, "kornia's colours, filters, geometry, losses, augmentations; "
        "seven segmentation models trained; torchdiffeq's methods, adjoint, events",
    ),
    Row(
        "run_trackers", ("wandb==0.31.0", "mlflow==3.17.2"), "wandb offline: logged, watched, "
        "tables, artifacts; MLflow: metrics, models pickled and exported, loaded, predicting",
    ),
    Row(
        "lit_server", ("litserve==0.2.19",), "LitServe with a compiled model, alone and in batches",
        environment=AS_WRITTEN,
    ),
]
