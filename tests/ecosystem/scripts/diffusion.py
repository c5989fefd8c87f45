"""diffusers: a small UNet learns to take noise away, and draws; schedulers, an autoencoder."""

import os
import sys

import torch
from diffusers import (
    AutoencoderKL, DDIMScheduler, DDPMPipeline, DDPMScheduler, DPMSolverMultistepScheduler,
    EulerDiscreteScheduler, UNet2DConditionModel, UNet2DModel,
)
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from told import on_graphc, own, tell

stage = sys.argv[1]


def unet():
    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4, attention_head_dim=8,
    )


def train(model, call=None, steps=4):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = get_cosine_schedule_with_warmup(optimizer, 2, 10)
    noising = DDPMScheduler(num_train_timesteps=50)
    average = EMAModel(model.parameters(), decay=0.9)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        clean = torch.rand(4, 1, 16, 16) * 2 - 1
        noise, steps_of = torch.randn_like(clean), torch.randint(0, 50, (4,))
        guess = (model if call is None else call)(noising.add_noise(clean, noise, steps_of), steps_of, return_dict=False)[0]
        loss = torch.nn.functional.mse_loss(guess, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        losses.append(loss.item())
    return losses, average


if stage == "write":
    model = unet()
    losses, average = train(model)
    tell("losses", losses, 1e-4)
    tell("average", [p.norm() for p in average.shadow_params][:6], 1e-4)
    model.eval().save_pretrained("unet")
    tell("files", sorted(os.listdir("unet")))
    pipe = DDPMPipeline(model, DDPMScheduler(num_train_timesteps=50))
    pipe.set_progress_bar_config(disable=True)
    drawn = pipe(batch_size=2, generator=torch.Generator().manual_seed(3), num_inference_steps=5, output_type="np")
    tell("drawn", drawn.images.mean((1, 2)).tolist(), 1e-2)
    call = unet()
    compiled = torch.compile(call, **({} if on_graphc() else {"backend": "eager"}))
    tell("compiled: losses", train(call, compiled)[0], 1e-4)
    if on_graphc():
        function = compiled._compiled_function
        own("versions", function.compile_count)
        own("segments", function.segments and [f"{e.reason} at {e.loc}" for e in function.segments.ends])
else:
    model = UNet2DModel.from_pretrained("unet").eval()
    torch.manual_seed(4)
    noisy = torch.randn(2, 1, 16, 16)
    for kind in (DDPMScheduler, DDIMScheduler, DPMSolverMultistepScheduler, EulerDiscreteScheduler):
        schedule = kind(num_train_timesteps=50)
        schedule.set_timesteps(6)
        found = noisy * schedule.init_noise_sigma
        draws = torch.Generator().manual_seed(5)
        for t in schedule.timesteps:
            with torch.no_grad():
                guess = model(schedule.scale_model_input(found, t), t).sample
            options = {} if kind is DPMSolverMultistepScheduler else {"generator": draws}
            found = schedule.step(guess, t, found, **options).prev_sample
        tell(f"{kind.__name__}: steps", schedule.timesteps, 1e-6)
        tell(f"{kind.__name__}: found", [found.norm(), found.flatten()[:4]], 1e-3)
    torch.manual_seed(6)
    coder = AutoencoderKL(
        in_channels=3, out_channels=3, block_out_channels=(8, 16), latent_channels=4, norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )
    picture = torch.randn(2, 3, 16, 16)
    latent = coder.encode(picture).latent_dist
    again = coder.decode(latent.sample(torch.Generator().manual_seed(7))).sample
    loss = (again - picture).square().mean() + 1e-2 * latent.kl().mean()
    loss.backward()
    tell("autoencoder: loss", loss, 1e-5)
    tell("autoencoder: gradients", [p.grad.norm() for p in coder.parameters() if p.grad is not None], 1e-3)
    torch.manual_seed(8)
    told_what = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32), cross_attention_dim=12,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        norm_num_groups=4, attention_head_dim=4,
    )
    result = told_what(torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), encoder_hidden_states=torch.randn(2, 5, 12)).sample
    tell("told what", [result.norm(), result.flatten()[:4]], 1e-4)
