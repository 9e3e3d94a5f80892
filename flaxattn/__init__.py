# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The attention-first Transformer library for JAX.

The public names, each loaded on first use. This file computes nothing and imports nothing heavy:
`import flaxattn` does not load jax, and `import flaxattn.kernels.attention` loads no model.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flaxattn import kernels as kernels
    from flaxattn.attribution.ablation import ablate as ablate
    from flaxattn.attribution.ablation import head_importance as head_importance
    from flaxattn.attribution.ablation import pruning_curve as pruning_curve
    from flaxattn.attribution.attribution_maps import attention_gradients as attention_gradients
    from flaxattn.attribution.attribution_maps import attention_norms as attention_norms
    from flaxattn.attribution.attribution_maps import effective_attention as effective_attention
    from flaxattn.attribution.attribution_maps import value_zeroing as value_zeroing
    from flaxattn.attribution.contribution_maps import contributions as contributions
    from flaxattn.attribution.head_losses import HeadTask as HeadTask
    from flaxattn.attribution.head_losses import head_task as head_task
    from flaxattn.attribution.rollout import attention_flow as attention_flow
    from flaxattn.attribution.rollout import rollout as rollout
    from flaxattn.kernels.contract import Capture as Capture
    from flaxattn.kernels.contract import Sieve as Sieve
    from flaxattn.measures.divergence import compare_traces as compare_traces
    from flaxattn.measures.head_roles import head_roles as head_roles
    from flaxattn.measures.head_roles import head_stats as head_stats
    from flaxattn.measures.head_roles import measure as measure
    from flaxattn.measures.induction import detect_heads as detect_heads
    from flaxattn.measures.read_report import read_report as read_report
    from flaxattn.models.bert_config import BertConfig as BertConfig
    from flaxattn.models.decoder_config import DecoderConfig as DecoderConfig
    from flaxattn.models.gpt2_config import GPT2Config as GPT2Config
    from flaxattn.models.rnn_config import RnnConfig as RnnConfig
    from flaxattn.models.seq2seq_config import Seq2SeqConfig as Seq2SeqConfig
    from flaxattn.models.t5_config import T5Config as T5Config
    from flaxattn.pipeline.embed import embed as embed
    from flaxattn.pipeline.extraction import extract as extract
    from flaxattn.pipeline.extraction import extract_models as extract_models
    from flaxattn.pipeline.online_moments import OnlineMoments as OnlineMoments
    from flaxattn.pretrained.fill_mask import fill_mask as fill_mask
    from flaxattn.pretrained.from_pretrained import from_pretrained as from_pretrained
    from flaxattn.pretrained.pretrained_model import Pretrained as Pretrained
    from flaxattn.probes.head_coreference import head_coreference as head_coreference
    from flaxattn.probes.head_probe import apply_probe as apply_probe
    from flaxattn.probes.head_probe import head_probe as head_probe
    from flaxattn.probes.head_probe import structural_probe as structural_probe
    from flaxattn.probes.probe_file import load_probe as load_probe
    from flaxattn.probes.probe_file import save_probe as save_probe
    from flaxattn.store.extract_to import extract_to as extract_to
    from flaxattn.store.open_store import open_store as open_store
    from flaxattn.trace.inseq import from_inseq as from_inseq
    from flaxattn.trace.other_libraries import from_huggingface as from_huggingface
    from flaxattn.trace.other_libraries import from_transformer_lens as from_transformer_lens
    from flaxattn.trace.trace import Trace as Trace
    from flaxattn.views.figures.plot_alignment import plot_alignment as plot_alignment
    from flaxattn.views.figures.plot_atlas import plot_atlas as plot_atlas
    from flaxattn.views.figures.plot_compare import plot_compare as plot_compare
    from flaxattn.views.figures.plot_head_scores import plot_head_scores as plot_head_scores
    from flaxattn.views.figures.plot_heads import plot_heads as plot_heads
    from flaxattn.views.figures.plot_model import plot_model as plot_model
    from flaxattn.views.figures.plot_neuron import plot_neuron as plot_neuron
    from flaxattn.views.figures.plot_positions import plot_positions as plot_positions
    from flaxattn.views.figures.plot_state import plot_state as plot_state
    from flaxattn.views.figures.save_figure import save_figure as save_figure
    from flaxattn.views.trace_views import atlas_view as atlas_view
    from flaxattn.views.trace_views import compare_view as compare_view
    from flaxattn.views.trace_views import head_view as head_view
    from flaxattn.views.trace_views import model_view as model_view
    from flaxattn.views.trace_views import neuron_view as neuron_view

__version__ = "0.1.0.dev0"

_HOMES = {
    "BertConfig": "flaxattn.models.bert_config",
    "Capture": "flaxattn.kernels.contract",
    "DecoderConfig": "flaxattn.models.decoder_config",
    "GPT2Config": "flaxattn.models.gpt2_config",
    "HeadTask": "flaxattn.attribution.head_losses",
    "Pretrained": "flaxattn.pretrained.pretrained_model",
    "RnnConfig": "flaxattn.models.rnn_config",
    "OnlineMoments": "flaxattn.pipeline.online_moments",
    "Seq2SeqConfig": "flaxattn.models.seq2seq_config",
    "Sieve": "flaxattn.kernels.contract",
    "T5Config": "flaxattn.models.t5_config",
    "Trace": "flaxattn.trace.trace",
    "ablate": "flaxattn.attribution.ablation",
    "apply_probe": "flaxattn.probes.head_probe",
    "attention_flow": "flaxattn.attribution.rollout",
    "attention_gradients": "flaxattn.attribution.attribution_maps",
    "attention_norms": "flaxattn.attribution.attribution_maps",
    "atlas_view": "flaxattn.views.trace_views",
    "compare_traces": "flaxattn.measures.divergence",
    "compare_view": "flaxattn.views.trace_views",
    "contributions": "flaxattn.attribution.contribution_maps",
    "detect_heads": "flaxattn.measures.induction",
    "effective_attention": "flaxattn.attribution.attribution_maps",
    "embed": "flaxattn.pipeline.embed",
    "extract": "flaxattn.pipeline.extraction",
    "extract_models": "flaxattn.pipeline.extraction",
    "extract_to": "flaxattn.store.extract_to",
    "fill_mask": "flaxattn.pretrained.fill_mask",
    "from_huggingface": "flaxattn.trace.other_libraries",
    "from_inseq": "flaxattn.trace.inseq",
    "from_pretrained": "flaxattn.pretrained.from_pretrained",
    "head_importance": "flaxattn.attribution.ablation",
    "head_task": "flaxattn.attribution.head_losses",
    "head_coreference": "flaxattn.probes.head_coreference",
    "head_probe": "flaxattn.probes.head_probe",
    "head_roles": "flaxattn.measures.head_roles",
    "head_stats": "flaxattn.measures.head_roles",
    "head_view": "flaxattn.views.trace_views",
    "from_transformer_lens": "flaxattn.trace.other_libraries",
    "kernels": "flaxattn.kernels",
    "measure": "flaxattn.measures.head_roles",
    "load_probe": "flaxattn.probes.probe_file",
    "model_view": "flaxattn.views.trace_views",
    "neuron_view": "flaxattn.views.trace_views",
    "open_store": "flaxattn.store.open_store",
    "plot_alignment": "flaxattn.views.figures.plot_alignment",
    "plot_atlas": "flaxattn.views.figures.plot_atlas",
    "plot_compare": "flaxattn.views.figures.plot_compare",
    "plot_head_scores": "flaxattn.views.figures.plot_head_scores",
    "plot_heads": "flaxattn.views.figures.plot_heads",
    "plot_model": "flaxattn.views.figures.plot_model",
    "plot_neuron": "flaxattn.views.figures.plot_neuron",
    "plot_positions": "flaxattn.views.figures.plot_positions",
    "pruning_curve": "flaxattn.attribution.ablation",
    "read_report": "flaxattn.measures.read_report",
    "rollout": "flaxattn.attribution.rollout",
    "plot_state": "flaxattn.views.figures.plot_state",
    "save_figure": "flaxattn.views.figures.save_figure",
    "save_probe": "flaxattn.probes.probe_file",
    "structural_probe": "flaxattn.probes.head_probe",
    "value_zeroing": "flaxattn.attribution.attribution_maps",
}
__all__ = [  # a list in this file, so that type checkers can read it
    "BertConfig",
    "Capture",
    "DecoderConfig",
    "GPT2Config",
    "HeadTask",
    "OnlineMoments",
    "Pretrained",
    "RnnConfig",
    "Seq2SeqConfig",
    "Sieve",
    "T5Config",
    "Trace",
    "__version__",
    "ablate",
    "apply_probe",
    "atlas_view",
    "attention_flow",
    "attention_gradients",
    "attention_norms",
    "compare_traces",
    "compare_view",
    "contributions",
    "detect_heads",
    "effective_attention",
    "embed",
    "extract",
    "extract_models",
    "extract_to",
    "fill_mask",
    "from_huggingface",
    "from_inseq",
    "from_pretrained",
    "from_transformer_lens",
    "head_coreference",
    "head_importance",
    "head_probe",
    "head_roles",
    "head_stats",
    "head_task",
    "head_view",
    "kernels",
    "load_probe",
    "measure",
    "model_view",
    "neuron_view",
    "open_store",
    "plot_alignment",
    "plot_atlas",
    "plot_compare",
    "plot_head_scores",
    "plot_heads",
    "plot_model",
    "plot_neuron",
    "plot_positions",
    "plot_state",
    "pruning_curve",
    "read_report",
    "rollout",
    "save_figure",
    "save_probe",
    "structural_probe",
    "value_zeroing",
]


_RENAMED = {"Running": "OnlineMoments"}


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        from warnings import warn

        told = f"flaxattn.{name} is called flaxattn.{_RENAMED[name]} now"
        warn(told, DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'flaxattn' has no attribute {name!r}")
    module = import_module(_HOMES[name])
    value = module if _HOMES[name] == f"flaxattn.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
