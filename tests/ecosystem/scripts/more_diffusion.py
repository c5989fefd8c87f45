"""diffusers: every scheduler that runs without arguments, transformers and UNets of fourteen
families, autoencoders, LoRA, pipelines."""

import inspect

import torch
from diffusers import (
    AuraFlowTransformer2DModel, AutoencoderDC, AutoencoderKL, AutoencoderKLCogVideoX, AutoencoderKLWan, AutoencoderOobleck,
    AutoencoderTiny, CogVideoXTransformer3DModel, ControlNetModel, DDIMScheduler, DiTTransformer2DModel,
    EulerAncestralDiscreteScheduler, FluxTransformer2DModel, HunyuanVideoTransformer3DModel, Lumina2Transformer2DModel,
    MochiTransformer3DModel, PixArtTransformer2DModel, SanaTransformer2DModel, SD3Transformer2DModel,
    StableDiffusionImg2ImgPipeline, StableDiffusionPipeline, UNet1DModel, UNet2DConditionModel, UNet3DConditionModel,
    UNetSpatioTemporalConditionModel, VQModel, WanTransformer3DModel, schedulers,
)
from told import tell

r, T = torch.randn, torch.tensor

# --- schedulers --------------------------------------------------------------------------------

LEFT_OUT = """
    Amused BlockRefinement CogVideoXDPM ConsistencyDecoder CosineDPMSolverMultistep DDPMWuerstchen DPMSolverSDE DiscreteDDIM
    EntropyBound HeliosDMD Helios KarrasVe LMSDiscrete Piflow RFD4Proteina RePaint SCM ScoreSdeVe ScoreSdeVp VQDiffusion
""".split()  # they need arguments, other samples or other packages
OPTIONS = [
    ("EulerDiscrete", {"use_karras_sigmas": True}), ("EulerDiscrete", {"timestep_spacing": "trailing", "prediction_type": "v_prediction"}),
    ("DPMSolverMultistep", {"algorithm_type": "sde-dpmsolver++"}), ("DPMSolverMultistep", {"solver_order": 3, "final_sigmas_type": "sigma_min"}),
    ("DPMSolverMultistep", {"use_lu_lambdas": True}), ("DDIM", {"thresholding": True}), ("DDPM", {"variance_type": "fixed_small_log"}),
    ("UniPCMultistep", {"solver_order": 3}), ("FlowMatchEulerDiscrete", {"shift": 3.0}), ("DEISMultistep", {"solver_order": 3}),
]
plain = [(name.removesuffix("Scheduler"), {}) for name in sorted(dir(schedulers)) if name.endswith("Scheduler")]
for name, options in [*plain, *OPTIONS]:
    if name in LEFT_OUT or not inspect.isclass(kind := getattr(schedulers, f"{name}Scheduler")):
        continue
    torch.manual_seed(0)
    schedule = kind(**options)
    schedule.set_timesteps(num_inference_steps=6)
    x = r(2, 4, 8, 8) * float(getattr(schedule, "init_noise_sigma", 1.0))
    given = {"generator": torch.Generator().manual_seed(3)} if "generator" in inspect.signature(schedule.step).parameters else {}
    for t in schedule.timesteps:
        seen = schedule.scale_model_input(x, t) if hasattr(schedule, "scale_model_input") else x
        x = schedule.step(seen * 0.3 + 0.1 * torch.sin(seen + t * 0.01), t, x, **given)
        x = x.prev_sample if hasattr(x, "prev_sample") else x[0]
    tell(f"{name} {options or ''}", [schedule.timesteps, [x.norm(), x.flatten()[:8]]], 1e-4)

# --- models ------------------------------------------------------------------------------------

SMALL = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1}
CROSS = {"block_out_channels": (32, 64), "layers_per_block": 1}
MODELS = {
    "DiT": lambda: (DiTTransformer2DModel(in_channels=4, out_channels=8, sample_size=8, patch_size=2, num_embeds_ada_norm=10, **SMALL),
                    (r(2, 4, 8, 8),), {"timestep": T([1, 4]), "class_labels": T([1, 3])}),
    "PixArt": lambda: (PixArtTransformer2DModel(in_channels=4, out_channels=8, sample_size=8, patch_size=2, cross_attention_dim=16, caption_channels=8,
                                                use_additional_conditions=False, **SMALL), (r(2, 4, 8, 8),),
                       {"encoder_hidden_states": r(2, 3, 8), "timestep": T([1, 4]), "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}),
    "SD 3.5": lambda: (SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=4,
                                             caption_projection_dim=32, joint_attention_dim=32, pooled_projection_dim=64, out_channels=4,
                                             qk_norm="rms_norm", dual_attention_layers=(0,)), (r(2, 4, 16, 16), r(2, 7, 32), r(2, 64), T([3.0, 9.0])), {}),
    "Flux": lambda: (FluxTransformer2DModel(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
                                            joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8]),
                     (r(1, 16, 4), r(1, 7, 32), r(1, 32), T([0.5]), torch.randint(0, 4, (16, 3)).float(), torch.zeros(7, 3)), {}),
    "AuraFlow": lambda: (AuraFlowTransformer2DModel(sample_size=16, patch_size=2, in_channels=4, num_mmdit_layers=1, num_single_dit_layers=1,
                                                    attention_head_dim=8, num_attention_heads=4, caption_projection_dim=32, joint_attention_dim=32,
                                                    out_channels=4, pos_embed_max_size=64), (r(2, 4, 16, 16), r(2, 7, 32), T([0.3, 0.9])), {}),
    "CogVideoX": lambda: (CogVideoXTransformer3DModel(in_channels=4, out_channels=4, time_embed_dim=2, text_embed_dim=8, sample_width=8, sample_height=8,
                                                      sample_frames=8, patch_size=2, max_text_seq_length=8, **SMALL), (r(1, 1, 4, 8, 8),),
                          {"encoder_hidden_states": r(1, 8, 8), "timestep": T([3])}),
    "Wan": lambda: (WanTransformer3DModel(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16,
                                          freq_dim=256, ffn_dim=32, num_layers=1, cross_attn_norm=True), (r(1, 4, 2, 8, 8), T([3]), r(1, 5, 16)), {}),
    "Sana": lambda: (SanaTransformer2DModel(patch_size=1, in_channels=4, out_channels=4, num_layers=1, attention_head_dim=4, num_attention_heads=2,
                                            num_cross_attention_heads=2, cross_attention_head_dim=4, cross_attention_dim=8, caption_channels=8,
                                            sample_size=32), (r(2, 4, 8, 8),), {"encoder_hidden_states": r(2, 5, 8), "timestep": T([1, 3])}),
    "Lumina": lambda: (Lumina2Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, hidden_size=24, num_layers=1, num_refiner_layers=1,
                                                 num_attention_heads=3, num_kv_heads=1, multiple_of=2, axes_dim_rope=[4, 2, 2], axes_lens=[64, 64, 64],
                                                 cap_feat_dim=8), (r(1, 4, 16, 16), T([0.3]), r(1, 5, 8), torch.ones(1, 5).bool()), {}),
    "Mochi": lambda: (MochiTransformer3DModel(patch_size=2, pooled_projection_dim=16, in_channels=4, text_embed_dim=16, time_embed_dim=4,
                                              max_sequence_length=16, **{**SMALL, "num_layers": 2}),
                      (r(1, 4, 2, 8, 8), r(1, 5, 16), T([3]), torch.ones(1, 5).bool()), {}),
    "HunyuanVideo": lambda: (HunyuanVideoTransformer3DModel(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=10, num_layers=1,
                                                            num_single_layers=1, num_refiner_layers=1, patch_size=1, patch_size_t=1, text_embed_dim=16,
                                                            pooled_projection_dim=8, rope_axes_dim=(2, 4, 4)),
                             (r(1, 4, 2, 4, 4), T([3]), r(1, 5, 16), torch.ones(1, 5), r(1, 8), T([4.0])), {}),
    "UNet 1D": lambda: (UNet1DModel(sample_size=64, in_channels=14, out_channels=14, time_embedding_type="positional", use_timestep_embedding=True,
                                    act_fn="mish", block_out_channels=(16, 32), down_block_types=("DownResnetBlock1D",) * 2,
                                    up_block_types=("UpResnetBlock1D",), out_block_type="OutConv1DBlock", mid_block_type="MidResTemporalBlock1D",
                                    layers_per_block=1), (r(2, 14, 16), T([3, 5])), {}),
    "UNet XL": lambda: (UNet2DConditionModel(sample_size=16, in_channels=4, out_channels=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                             up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=(2, 4), use_linear_projection=True,
                                             addition_embed_type="text_time", addition_time_embed_dim=8, transformer_layers_per_block=(1, 2),
                                             projection_class_embeddings_input_dim=80, cross_attention_dim=64, **CROSS), (r(2, 4, 16, 16), T([3, 7])),
                        {"encoder_hidden_states": r(2, 5, 64), "added_cond_kwargs": {"text_embeds": r(2, 32), "time_ids": torch.arange(12.0).reshape(2, 6)}}),
    "UNet 3D": lambda: (UNet3DConditionModel(sample_size=16, in_channels=4, out_channels=4, block_out_channels=(4, 8), layers_per_block=1,
                                             down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"), up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
                                             cross_attention_dim=16, attention_head_dim=2, norm_num_groups=2), (r(1, 4, 3, 16, 16), 5, r(1, 4, 16)), {}),
    "UNet video": lambda: (UNetSpatioTemporalConditionModel(
        sample_size=16, in_channels=8, out_channels=4, down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"), cross_attention_dim=16, num_attention_heads=2,
        projection_class_embeddings_input_dim=24, addition_time_embed_dim=8, **CROSS), (r(1, 2, 8, 16, 16), 5, r(1, 1, 16)), {"added_time_ids": r(1, 3)}),
    "tiny autoencoder": lambda: (AutoencoderTiny(encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8), num_encoder_blocks=(1, 1),
                                                 num_decoder_blocks=(1, 1)), (r(1, 3, 16, 16),), {}),
    "VQ": lambda: (VQModel(block_out_channels=(8, 16), norm_num_groups=4, down_block_types=("DownEncoderBlock2D",) * 2,
                           up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=3, num_vq_embeddings=16), (r(1, 3, 16, 16),), {}),
    "video autoencoder": lambda: (AutoencoderKLCogVideoX(
        block_out_channels=(8, 8, 8, 8), down_block_types=("CogVideoXDownBlock3D",) * 4, up_block_types=("CogVideoXUpBlock3D",) * 4, latent_channels=4,
        layers_per_block=1, norm_num_groups=2), (r(1, 3, 9, 16, 16),), {}),
    "Wan's autoencoder": lambda: (AutoencoderKLWan(base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1), (r(1, 3, 9, 16, 16),), {}),
    "deep autoencoder": lambda: (AutoencoderDC(
        in_channels=3, latent_channels=4, attention_head_dim=2, encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"), encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
        encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,)), encoder_layers_per_block=(1, 1), decoder_layers_per_block=[1, 1],
        downsample_block_type="conv", upsample_block_type="interpolate", decoder_act_fns="silu"), (r(1, 3, 16, 16),), {}),
    "sound": lambda: (AutoencoderOobleck(encoder_hidden_size=12, decoder_channels=12, decoder_input_channels=6, audio_channels=2,
                                         downsampling_ratios=[2, 4], channel_multiples=[1, 2]), (r(1, 2, 24),), {}),
}
for name, make in MODELS.items():
    torch.manual_seed(1)
    model, args, kwargs = make()
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=1e-2), []
    for _ in range(2):
        found = model(*args, **kwargs)
        found = found[0] if isinstance(found, tuple) else found.sample
        loss = found.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tell(f"{name}: losses", losses, 1e-4)
    tell(f"{name}: found", [found.norm(), found.flatten()[:8]], 1e-3)

# --- adapters and pipelines --------------------------------------------------------------------


def unet(**more):
    torch.manual_seed(2)
    return UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=16, norm_num_groups=4,
        attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **more,
    )


model = unet().eval()
control = ControlNetModel.from_unet(model, conditioning_embedding_out_channels=(16, 32)).eval()
torch.manual_seed(3)
x, words, picture = r(1, 4, 8, 8), r(1, 5, 16), r(1, 3, 16, 16)
with torch.no_grad():
    down, middle = control(x, T([3]), words, picture, return_dict=False)
    found = model(x, T([3]), words, down_block_additional_residuals=[d + 0.1 for d in down], mid_block_additional_residual=middle + 0.1).sample
tell("controlled", [found.norm(), found.flatten()[:8]], 1e-4)
torch.manual_seed(4)
coder = AutoencoderKL(block_out_channels=(8, 16), norm_num_groups=4, down_block_types=("DownEncoderBlock2D",) * 2,
                      up_block_types=("UpDecoderBlock2D",) * 2).eval()
pipe = StableDiffusionPipeline(coder, None, None, model, DDIMScheduler(), None, None, requires_safety_checker=False)
asked = {"prompt_embeds": r(1, 7, 16), "negative_prompt_embeds": r(1, 7, 16), "num_inference_steps": 4, "output_type": "np"}
for scheduler in (DDIMScheduler, EulerAncestralDiscreteScheduler):
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config)
    pipe.set_progress_bar_config(disable=True)
    drawn = pipe(height=16, width=16, generator=torch.Generator().manual_seed(0), **asked).images
    tell(f"drawn by {scheduler.__name__}", drawn.reshape(-1)[:64], 1e-3)
again = StableDiffusionImg2ImgPipeline(**pipe.components, requires_safety_checker=False)
again.set_progress_bar_config(disable=True)
drawn = again(image=torch.rand(1, 3, 16, 16), strength=0.6, generator=torch.Generator().manual_seed(0), **asked).images
tell("drawn from a picture", drawn.reshape(-1)[:64], 1e-3)
coder.enable_tiling()
coder.enable_slicing()
tell("tiles", coder.encode(torch.rand(2, 3, 48, 40, generator=torch.Generator().manual_seed(5))).latent_dist.mode().flatten()[:64], 1e-3)
