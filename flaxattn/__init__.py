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
    from flaxattn.ablation import ablate as ablate
    from flaxattn.ablation import head_importance as head_importance
    from flaxattn.ablation import pruning_curve as pruning_curve
    from flaxattn.config import BertConfig as BertConfig
    from flaxattn.extraction.coreference import head_coreference as head_coreference
    from flaxattn.extraction.embed import embed as embed
    from flaxattn.extraction.extract import extract as extract
    from flaxattn.extraction.extract import extract_models as extract_models
    from flaxattn.extraction.head_roles import head_roles as head_roles
    from flaxattn.extraction.head_roles import head_stats as head_stats
    from flaxattn.extraction.probes import apply_probe as apply_probe
    from flaxattn.extraction.probes import head_probe as head_probe
    from flaxattn.extraction.probes import structural_probe as structural_probe
    from flaxattn.extraction.run import extract_to as extract_to
    from flaxattn.figures.alignment import plot_alignment as plot_alignment
    from flaxattn.figures.atlas import plot_atlas as plot_atlas
    from flaxattn.figures.compare import plot_compare as plot_compare
    from flaxattn.figures.head_scores import plot_head_scores as plot_head_scores
    from flaxattn.figures.heads import plot_heads as plot_heads
    from flaxattn.figures.model import plot_model as plot_model
    from flaxattn.figures.neuron import plot_neuron as plot_neuron
    from flaxattn.figures.positions import plot_positions as plot_positions
    from flaxattn.figures.saving import save_figure as save_figure
    from flaxattn.figures.state import plot_state as plot_state
    from flaxattn.gpt2_config import GPT2Config as GPT2Config
    from flaxattn.handle import Pretrained as Pretrained
    from flaxattn.head_losses import HeadTask as HeadTask
    from flaxattn.head_losses import head_task as head_task
    from flaxattn.heads.contribution_maps import contributions as contributions
    from flaxattn.heads.divergence import compare_traces as compare_traces
    from flaxattn.heads.flow import attention_flow as attention_flow
    from flaxattn.heads.flow import rollout as rollout
    from flaxattn.heads.induction import detect_heads as detect_heads
    from flaxattn.imports import from_huggingface as from_huggingface
    from flaxattn.imports import from_transformer_lens as from_transformer_lens
    from flaxattn.inseq import from_inseq as from_inseq
    from flaxattn.kernels.contract import Capture as Capture
    from flaxattn.kernels.contract import Sieve as Sieve
    from flaxattn.loading import from_pretrained as from_pretrained
    from flaxattn.probes.probe_file import load_probe as load_probe
    from flaxattn.probes.probe_file import save_probe as save_probe
    from flaxattn.rnn_config import RnnConfig as RnnConfig
    from flaxattn.running import Running as Running
    from flaxattn.seq2seq_config import Seq2SeqConfig as Seq2SeqConfig
    from flaxattn.store.store import open_store as open_store
    from flaxattn.trace import Trace as Trace
    from flaxattn.views.doors import atlas_view as atlas_view
    from flaxattn.views.doors import compare_view as compare_view
    from flaxattn.views.doors import head_view as head_view
    from flaxattn.views.doors import model_view as model_view
    from flaxattn.views.doors import neuron_view as neuron_view
    from flaxattn.weighing import attention_gradients as attention_gradients
    from flaxattn.weighing import attention_norms as attention_norms
    from flaxattn.weighing import effective_attention as effective_attention
    from flaxattn.weighing import value_zeroing as value_zeroing

__version__ = "0.1.0.dev0"

_HOMES = {
    "BertConfig": "flaxattn.config",
    "Capture": "flaxattn.kernels.contract",
    "GPT2Config": "flaxattn.gpt2_config",
    "HeadTask": "flaxattn.head_losses",
    "Pretrained": "flaxattn.handle",
    "RnnConfig": "flaxattn.rnn_config",
    "Running": "flaxattn.running",
    "Seq2SeqConfig": "flaxattn.seq2seq_config",
    "Sieve": "flaxattn.kernels.contract",
    "Trace": "flaxattn.trace",
    "ablate": "flaxattn.ablation",
    "apply_probe": "flaxattn.extraction.probes",
    "attention_flow": "flaxattn.heads.flow",
    "attention_gradients": "flaxattn.weighing",
    "attention_norms": "flaxattn.weighing",
    "atlas_view": "flaxattn.views.doors",
    "compare_traces": "flaxattn.heads.divergence",
    "compare_view": "flaxattn.views.doors",
    "contributions": "flaxattn.heads.contribution_maps",
    "detect_heads": "flaxattn.heads.induction",
    "effective_attention": "flaxattn.weighing",
    "embed": "flaxattn.extraction.embed",
    "extract": "flaxattn.extraction.extract",
    "extract_models": "flaxattn.extraction.extract",
    "extract_to": "flaxattn.extraction.run",
    "from_huggingface": "flaxattn.imports",
    "from_inseq": "flaxattn.inseq",
    "from_pretrained": "flaxattn.loading",
    "head_importance": "flaxattn.ablation",
    "head_task": "flaxattn.head_losses",
    "head_coreference": "flaxattn.extraction.coreference",
    "head_probe": "flaxattn.extraction.probes",
    "head_roles": "flaxattn.extraction.head_roles",
    "head_stats": "flaxattn.extraction.head_roles",
    "head_view": "flaxattn.views.doors",
    "from_transformer_lens": "flaxattn.imports",
    "kernels": "flaxattn.kernels",
    "load_probe": "flaxattn.probes.probe_file",
    "model_view": "flaxattn.views.doors",
    "neuron_view": "flaxattn.views.doors",
    "open_store": "flaxattn.store.store",
    "plot_alignment": "flaxattn.figures.alignment",
    "plot_atlas": "flaxattn.figures.atlas",
    "plot_compare": "flaxattn.figures.compare",
    "plot_head_scores": "flaxattn.figures.head_scores",
    "plot_heads": "flaxattn.figures.heads",
    "plot_model": "flaxattn.figures.model",
    "plot_neuron": "flaxattn.figures.neuron",
    "plot_positions": "flaxattn.figures.positions",
    "pruning_curve": "flaxattn.ablation",
    "rollout": "flaxattn.heads.flow",
    "plot_state": "flaxattn.figures.state",
    "save_figure": "flaxattn.figures.saving",
    "save_probe": "flaxattn.probes.probe_file",
    "structural_probe": "flaxattn.extraction.probes",
    "value_zeroing": "flaxattn.weighing",
}
__all__ = [  # a list in this file, so that type checkers can read it
    "BertConfig",
    "Capture",
    "GPT2Config",
    "HeadTask",
    "Pretrained",
    "RnnConfig",
    "Running",
    "Seq2SeqConfig",
    "Sieve",
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
    "rollout",
    "save_figure",
    "save_probe",
    "structural_probe",
    "value_zeroing",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'flaxattn' has no attribute {name!r}")
    module = import_module(_HOMES[name])
    value = module if _HOMES[name] == f"flaxattn.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
