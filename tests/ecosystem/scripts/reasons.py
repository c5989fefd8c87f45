"""captum: what the parts of a picture, and of a network, add to its answer."""

import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from captum.attr import DeepLift, FeatureAblation, GradientShap, GuidedBackprop, InputXGradient, IntegratedGradients, LayerActivation, LayerConductance, LayerGradCam, LayerIntegratedGradients, NeuronGradient, NoiseTunnel, Occlusion, Saliency, ShapleyValueSampling  # noqa: E402
from told import tell  # noqa: E402
from torch import nn  # noqa: E402

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)).eval()
x = torch.randn(2, 1, 8, 8)
for kind in (Saliency, InputXGradient, IntegratedGradients, DeepLift, GuidedBackprop):
    tell(kind.__name__, kind(model).attribute(x.clone().requires_grad_(), target=1), 1e-3)
tell("GradientShap", GradientShap(model).attribute(x, baselines=torch.zeros(3, 1, 8, 8), n_samples=4, stdevs=0.0, target=0).shape)
tell("FeatureAblation", FeatureAblation(model).attribute(x, target=0, feature_mask=torch.arange(64).reshape(1, 1, 8, 8) // 16), 1e-3)
tell("Occlusion", Occlusion(model).attribute(x, (1, 4, 4), (1, 4, 4), target=0), 1e-3)
torch.manual_seed(1)
tell("Shapley", ShapleyValueSampling(model).attribute(x, target=0, n_samples=3, feature_mask=torch.arange(64).reshape(1, 1, 8, 8) // 16), 1e-3)
for kind in (LayerActivation, LayerConductance, LayerGradCam):
    found = kind(model, model[2])
    tell(kind.__name__, found.attribute(x) if kind is LayerActivation else found.attribute(x, target=1), 1e-3)
tell("LayerIntegratedGradients", LayerIntegratedGradients(model, model[0]).attribute(x, target=2, n_steps=10), 1e-3)
tell("NeuronGradient", NeuronGradient(model, model[2]).attribute(x, (0, 1, 1)), 1e-3)
torch.manual_seed(2)
tell("NoiseTunnel", NoiseTunnel(Saliency(model)).attribute(x, nt_samples=3, target=1), 1e-3)
