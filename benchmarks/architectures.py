"""Architectures of the installed transformers, each as a tiny model: trained, saved, read again, gone on with.

    python benchmarks/architectures.py [--task causal-lm] [--packed] [--only mixtral qwen3_moe] [--json FILE]

A row is an architecture of the task that makes a model from its configuration with a few small sizes. It trains three
steps with the trainer ``transformers``; its checkpoint behind the second is read by ``from_pretrained``, and by a new
trainer that makes the third step again: all tensors and the loss have to be the same to the last bit. The table counts
how far each came. With ``--packed``, the texts of a step are one row, and attention ends at each.
"""

import argparse
import contextlib
import copy
import json
import os
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
VOCABULARY = 320
#: Sizes of a tiny model, by the names that configurations have for them; those that one has not are left out.
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 16),
    # Four: of models that attend in some layers alone, one does then.
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "moe_topk"), 2),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    "rotary_dim": 4,
    # Of images.
    "image_size": 64,
    "patch_size": 8,
    # Of audio.
    **dict.fromkeys(("conv_dim", "tdnn_dim"), (16, 16)),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "conv_bias": False,
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "num_mel_bins": 80,
    "max_source_positions": 50,
    "max_target_positions": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "output_router_logits": True,
    "layer_types": None,
    "mlp_layer_types": None,
}
LIMIT_SECONDS = 60
LARGEST = 60_000_000
STAGES = ("no tiny model", "refused", "does not train", "not read alike", "does not go on alike", "all")


class Failed(Exception):
    """An architecture came no further."""

    def __init__(self, stage: str, error: BaseException | str) -> None:
        reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        super().__init__(stage, reason.strip().partition("\n")[0][:160])


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    try:
        yield
    except Failed:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Failed(name, error) from error


def tiny(kind: str) -> Mapping[str, Any]:
    """The sizes that this configuration has, those of its text among them."""
    from transformers import CONFIG_MAPPING

    known = CONFIG_MAPPING[kind]()
    config = _sizes(known)
    for part in ("text_config", "vision_config"):
        if getattr(known, part, None) is not None:
            config[part] = _sizes(getattr(known, part))
    return {"model_type": kind, **config}


def _sizes(known: Any) -> dict[str, Any]:
    sizes = {name: value for name, value in SIZES.items() if _takes(known, name)}
    if "kv_lora_rank" in sizes and "num_key_value_heads" in sizes:  # latent attention has keys for each head
        sizes["num_key_value_heads"] = 4
    return sizes


def _takes(config: Any, name: str) -> bool:
    if name in {"layer_types", "mlp_layer_types"}:
        return getattr(config, name, None) is not None
    return hasattr(config, name) and (getattr(config, name) is not None or name in {"pad_token_id", "n_inner"})


def save_processors(folder: Path) -> None:
    """A tokenizer, and processors by what they are of; Whisper's takes features of one length."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        PreTrainedTokenizerFast,
        ViTImageProcessorPil,
        Wav2Vec2FeatureExtractor,
        WhisperFeatureExtractor,
    )

    ViTImageProcessorPil().save_pretrained(folder / "images")
    Wav2Vec2FeatureExtractor().save_pretrained(folder / "audio")
    WhisperFeatureExtractor(chunk_length=1).save_pretrained(folder / "whisper")

    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "a": 2}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", mask_token="a")
    made.save_pretrained(folder / "tokenizer")


def context(hyperparams: Any) -> Any:
    from hostcore_hookspecs import Job, RunState, StepContext

    return StepContext(job=Job(max_steps=3), hyperparams=hyperparams, run_state=RunState(total_steps=3))


def rows(task: str, model: Any, number: int, *, packed: bool) -> Mapping[str, torch.Tensor]:
    """Two rows of random numbers, as the task encodes them."""
    from hostcore_transformers.packing import pack_texts

    drawn = torch.Generator().manual_seed(number)
    ids = torch.randint(2, VOCABULARY, (2, 16), generator=drawn)
    if packed:
        return pack_texts(ids.tolist(), ids.tolist(), 32, 0)
    if task == "sequence-classification":
        ids[:, -1] = 1  # encoder-decoders read the class from the end token
    text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    labels = {
        "sequence-classification": ids[:, 0] % 2,
        "token-classification": ids % 2,
        "question-answering": ids[:, :2] % 16,
        "image-classification": ids[:, 0] % 2,
        "audio-classification": ids[:, 0] % 2,
        "contrastive": torch.arange(2),
        "ctc": ids[:, :3],
    }.get(task, ids)
    if task in {"image-classification", "contrastive"}:
        side = getattr(getattr(model.config, "vision_config", model.config), "image_size", None) or 64
        pixels = torch.rand((2, 3, side, side) if isinstance(side, int) else (2, 3, *side), generator=drawn)
        text = {"pixel_values": pixels, **(text if task == "contrastive" else {})}
    elif task in {"audio-classification", "ctc", "speech-to-text"}:
        shape: tuple[int, ...] = (2, 4000)
        config = model.config
        if config.model_type == "audio-spectrogram-transformer":
            shape = (2, config.max_length, config.num_mel_bins)
        elif model.main_input_name == "input_features":
            features = getattr(config, "feature_projection_input_dim", 80)
            shape = (2, 80, 100) if config.model_type == "whisper" else (2, 100, features)
        text = {model.main_input_name: torch.rand(shape, generator=drawn)}
    return {**text, "labels": labels}


def step(trainer: Any, state: Any, ctx: Any, number: int) -> float:
    from hostcore_toolkit import seed_everything

    given = rows(ctx.hyperparams.task, state.plain, number, packed=bool(ctx.hyperparams.packing))
    batch = trainer.prepare_batch(given, state, ctx)
    seed_everything(number)  # of dropout, of routers with noise, of BigBird's random blocks
    return float(trainer.train_step(batch, state, ctx).metrics["loss"])


def try_one(task: str, kind: str, folder: Path, given: Path, *, packed: bool) -> None:
    """Take an architecture all the way.

    :raises Failed: Where it ends before.
    """
    import transformers
    from safetensors.torch import save_file

    from hostcore_hookspecs import InvalidSettings
    from hostcore_transformers.hyperparams import Hyperparams
    from hostcore_transformers.tasks import kinds_of_tasks
    from hostcore_transformers.trainer import TransformersTrainer

    auto = getattr(transformers, kinds_of_tasks()[task].auto)
    with stage("no tiny model"):
        config = dict(tiny(kind))
        if task != "causal-lm" and transformers.CONFIG_MAPPING[kind]().is_encoder_decoder:
            config["decoder_start_token_id"] = 1
        keys = {**config}
        made_from = transformers.AutoConfig.for_model(keys.pop("model_type"), **keys)
        made_from.architectures = []  # with None, transformers finds no class where a task has several
        with torch.device("meta"):
            made = auto.from_config(made_from)
        if (size := sum(one.numel() for one in made.parameters())) > LARGEST:
            raise Failed("no tiny model", f"{size / 1e6:.0f} million parameters")
    processor = given / (kind if (given / kind).exists() else next(iter(kinds_of_tasks()[task].reads[-1:])))
    ctx = context(
        Hyperparams(
            task=task,  # type: ignore[arg-type]
            config=config,
            tokenizer=given / "tokenizer",
            processor=processor,
            max_length=16,
            packing="texts" if packed else False,
            stride=4,
            learning_rate=1e-3,
        )
    )
    first = TransformersTrainer()
    torch.manual_seed(0)
    try:
        state = first.configure(ctx)
    except InvalidSettings as error:
        raise Failed("refused", str(error)) from error
    except Exception as error:
        raise Failed("no tiny model", error) from error
    with stage("does not train"):
        losses = [step(first, state, ctx, number) for number in range(2)]
        if not all(torch.isfinite(torch.tensor(losses))):
            raise Failed("does not train", f"losses {losses}")
    with stage("not read alike"):
        payload = first.state_dict(state)
        first.save_checkpoint(state, str(folder), ctx)
        weights = {name: tensor.clone() for name, tensor in payload["weights"].items()}
        save_file(_untied(payload["weights"]), folder / "model.safetensors", {"format": "pt"})
        read, found = auto.from_pretrained(folder, output_loading_info=True)
        compare(state.plain.state_dict(), read.state_dict(), "not read alike")
        if missing := found["missing_keys"]:
            raise Failed("not read alike", f"missing: {min(missing)}")
    payload = {**_copied(payload), "weights": weights}
    before = {name: tensor.clone() for name, tensor in state.plain.state_dict().items()}
    with stage("does not go on alike"):
        expected = step(first, state, ctx, 2)
        second = TransformersTrainer()
        torch.manual_seed(99)
        resumed = second.configure(ctx)
        second.load_state_dict(resumed, payload)
        compare(before, resumed.plain.state_dict(), "does not go on alike")
        if (found := step(second, resumed, ctx, 2)) != expected:
            raise Failed("does not go on alike", f"loss {found}, and it was {expected}")


def _copied(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in payload.items() if name != "weights"}


def _untied(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As the host writes them: a tensor under its first name, and views as tensors of their own."""
    seen: dict[Any, str] = {}
    for name, one in weights.items():
        seen.setdefault((one.data_ptr(), one.shape, one.stride()), name)
    return {name: weights[name].clone() for name in seen.values()}


def compare(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor], where: str) -> None:
    if ours.keys() != theirs.keys():
        raise Failed(where, f"other tensors: {min(ours.keys() ^ theirs.keys())}")
    for name, tensor in ours.items():
        if not torch.equal(tensor, theirs[name]):
            raise Failed(where, f"{name} differs")


def tried(task: str, kind: str, given: Path, *, packed: bool) -> tuple[str, str]:
    def expired(*_: Any) -> None:
        raise TimeoutError(f"more than {LIMIT_SECONDS} seconds")

    signal.signal(signal.SIGALRM, expired)
    signal.alarm(LIMIT_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        try:
            try_one(task, kind, Path(folder), given, packed=packed)
        except Failed as failed:
            return failed.args[0], failed.args[1]
        finally:
            signal.alarm(0)
    return "all", ""


def main() -> None:
    import transformers
    from transformers.utils import logging

    from hostcore_transformers.tasks import kinds_of_tasks

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=kinds_of_tasks(), default="causal-lm")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        save_processors(Path(folder))
        known = getattr(transformers, kinds_of_tasks()[options.task].auto)._model_mapping
        for kind in options.only or sorted({one.model_type for one in known}):
            results[kind] = tried(options.task, kind, Path(folder), packed=options.packed)
            sys.stdout.write(f"{kind:32} {results[kind][0]:22} {results[kind][1]}\n")
            sys.stdout.flush()
    counts = Counter(one for one, _ in results.values())
    sys.stdout.write("\n| came to | architectures |\n|---|---|\n")
    sys.stdout.writelines(f"| {one} | {counts[one]} |\n" for one in STAGES)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
