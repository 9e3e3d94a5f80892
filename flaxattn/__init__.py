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
    from flaxattn.attribution.contributions import contributions as contributions
    from flaxattn.attribution.faithfulness import Faithfulness as Faithfulness
    from flaxattn.attribution.faithfulness import faithfulness as faithfulness
    from flaxattn.attribution.faithfulness import token_scores as token_scores
    from flaxattn.attribution.head_circuits import head_circuits as head_circuits
    from flaxattn.attribution.head_losses import HeadTask as HeadTask
    from flaxattn.attribution.head_losses import head_task as head_task
    from flaxattn.attribution.logit_lens import logit_contributions as logit_contributions
    from flaxattn.attribution.logit_lens import logit_lens as logit_lens
    from flaxattn.attribution.patch_task import PatchRequest as PatchRequest
    from flaxattn.attribution.patching import patch as patch
    from flaxattn.attribution.relevance import chefer_relevance as chefer_relevance
    from flaxattn.attribution.relevance import relevance as relevance
    from flaxattn.attribution.rollout import attention_flow as attention_flow
    from flaxattn.attribution.rollout import rollout as rollout
    from flaxattn.attribution.token_losses import TokenLosses as TokenLosses
    from flaxattn.attribution.token_losses import token_losses as token_losses
    from flaxattn.corpus.sample_files import sample_files as sample_files
    from flaxattn.corpus.sample_files import sample_treebank as sample_treebank
    from flaxattn.corpus.texts import TextPair as TextPair
    from flaxattn.kernels.contract import Capture as Capture
    from flaxattn.kernels.contract import Sieve as Sieve
    from flaxattn.measures.claims import head_patterns as head_patterns
    from flaxattn.measures.divergence import compare_traces as compare_traces
    from flaxattn.measures.head_concordance import head_concordance as head_concordance
    from flaxattn.measures.head_roles import head_roles as head_roles
    from flaxattn.measures.head_roles import head_stats as head_stats
    from flaxattn.measures.head_roles import measure as measure
    from flaxattn.measures.induction import detect_heads as detect_heads
    from flaxattn.measures.read_report import read_report as read_report
    from flaxattn.measures.search import index_heads as index_heads
    from flaxattn.measures.search import search_heads as search_heads
    from flaxattn.models.decoder_config import DecoderConfig as DecoderConfig
    from flaxattn.models.decoder_config import GPT2Config as GPT2Config
    from flaxattn.models.encoder_config import BertConfig as BertConfig
    from flaxattn.models.interventions import Intervention as Intervention
    from flaxattn.models.interventions import site_values as site_values
    from flaxattn.models.interventions import with_interventions as with_interventions
    from flaxattn.models.seq2seq_config import RnnConfig as RnnConfig
    from flaxattn.models.seq2seq_config import Seq2SeqConfig as Seq2SeqConfig
    from flaxattn.models.seq2seq_config import T5Config as T5Config
    from flaxattn.pipeline.embed import embed as embed
    from flaxattn.pipeline.extraction import extract as extract
    from flaxattn.pipeline.extraction import extract_models as extract_models
    from flaxattn.pipeline.online_moments import OnlineMoments as OnlineMoments
    from flaxattn.pipeline.task_predictions import answer_question as answer_question
    from flaxattn.pipeline.task_predictions import classify as classify
    from flaxattn.pipeline.tokenize_texts import ReadingOptions as ReadingOptions
    from flaxattn.pretrained.from_pretrained import from_pretrained as from_pretrained
    from flaxattn.pretrained.from_pretrained import untrained as untrained
    from flaxattn.pretrained.head_projections import head_projections as head_projections
    from flaxattn.pretrained.pretrained_model import Pretrained as Pretrained
    from flaxattn.pretrained.token_probabilities import fill_mask as fill_mask
    from flaxattn.probes.head_coreference import head_coreference as head_coreference
    from flaxattn.probes.head_probe import apply_probe as apply_probe
    from flaxattn.probes.head_probe import head_probe as head_probe
    from flaxattn.probes.head_probe import label_probe as label_probe
    from flaxattn.probes.head_probe import structural_probe as structural_probe
    from flaxattn.probes.probe_file import load_probe as load_probe
    from flaxattn.probes.probe_file import save_probe as save_probe
    from flaxattn.reports.ablation import ablation_report as ablation_report
    from flaxattn.reports.circuits import circuits_report as circuits_report
    from flaxattn.reports.compare import compare as compare
    from flaxattn.reports.evidence import PageOptions as PageOptions
    from flaxattn.reports.faithfulness import faithfulness_report as faithfulness_report
    from flaxattn.reports.heads import heads_report as heads_report
    from flaxattn.reports.patching import patch_report as patch_report
    from flaxattn.reports.probes import applied_probe_report as applied_probe_report
    from flaxattn.reports.probes import coreference_report as coreference_report
    from flaxattn.reports.probes import label_report as label_report
    from flaxattn.reports.probes import probe_report as probe_report
    from flaxattn.reports.probes import structural_report as structural_report
    from flaxattn.reports.report import Report as Report
    from flaxattn.reports.roles import roles_report as roles_report
    from flaxattn.reports.stats import stats_report as stats_report
    from flaxattn.reports.weights import weights as weights
    from flaxattn.store.extract_to import extract_to as extract_to
    from flaxattn.store.open_store import open_store as open_store
    from flaxattn.trace.other_libraries import from_huggingface as from_huggingface
    from flaxattn.trace.other_libraries import from_inseq as from_inseq
    from flaxattn.trace.other_libraries import from_transformer_lens as from_transformer_lens
    from flaxattn.trace.trace import Trace as Trace
    from flaxattn.views.figures.figure_style import save_figure as save_figure
    from flaxattn.views.figures.plot_alignment import plot_alignment as plot_alignment
    from flaxattn.views.figures.plot_atlas import plot_atlas as plot_atlas
    from flaxattn.views.figures.plot_atlas import plot_compare as plot_compare
    from flaxattn.views.figures.plot_circuits import plot_circuits as plot_circuits
    from flaxattn.views.figures.plot_circuits import plot_composition as plot_composition
    from flaxattn.views.figures.plot_head_numbers import plot_concordance as plot_concordance
    from flaxattn.views.figures.plot_head_numbers import plot_head_scores as plot_head_scores
    from flaxattn.views.figures.plot_head_numbers import plot_head_values as plot_head_values
    from flaxattn.views.figures.plot_heads import plot_heads as plot_heads
    from flaxattn.views.figures.plot_heads import plot_model as plot_model
    from flaxattn.views.figures.plot_interventions import plot_faithfulness as plot_faithfulness
    from flaxattn.views.figures.plot_interventions import plot_patch_effects as plot_patch_effects
    from flaxattn.views.figures.plot_neuron import plot_neuron as plot_neuron
    from flaxattn.views.figures.plot_positions import plot_positions as plot_positions
    from flaxattn.views.figures.plot_predictions import plot_logit_lens as plot_logit_lens
    from flaxattn.views.figures.plot_predictions import plot_token_losses as plot_token_losses
    from flaxattn.views.figures.plot_roles import plot_role_grid as plot_role_grid
    from flaxattn.views.figures.plot_roles import plot_role_overlap as plot_role_overlap
    from flaxattn.views.figures.plot_roles import plot_roles as plot_roles
    from flaxattn.views.figures.plot_state import plot_state as plot_state
    from flaxattn.views.trace_views import atlas_view as atlas_view
    from flaxattn.views.trace_views import compare_view as compare_view
    from flaxattn.views.trace_views import head_view as head_view
    from flaxattn.views.trace_views import model_view as model_view
    from flaxattn.views.trace_views import neuron_view as neuron_view
    from flaxattn.views.trace_views import text_view as text_view

__version__ = "0.1.0"

_HOMES = {
    "BertConfig": "flaxattn.models.encoder_config",
    "Capture": "flaxattn.kernels.contract",
    "DecoderConfig": "flaxattn.models.decoder_config",
    "Faithfulness": "flaxattn.attribution.faithfulness",
    "GPT2Config": "flaxattn.models.decoder_config",
    "HeadTask": "flaxattn.attribution.head_losses",
    "Intervention": "flaxattn.models.interventions",
    "OnlineMoments": "flaxattn.pipeline.online_moments",
    "PageOptions": "flaxattn.reports.evidence",
    "PatchRequest": "flaxattn.attribution.patch_task",
    "Pretrained": "flaxattn.pretrained.pretrained_model",
    "ReadingOptions": "flaxattn.pipeline.tokenize_texts",
    "Report": "flaxattn.reports.report",
    "RnnConfig": "flaxattn.models.seq2seq_config",
    "Seq2SeqConfig": "flaxattn.models.seq2seq_config",
    "Sieve": "flaxattn.kernels.contract",
    "T5Config": "flaxattn.models.seq2seq_config",
    "TextPair": "flaxattn.corpus.texts",
    "TokenLosses": "flaxattn.attribution.token_losses",
    "Trace": "flaxattn.trace.trace",
    "ablate": "flaxattn.attribution.ablation",
    "ablation_report": "flaxattn.reports.ablation",
    "answer_question": "flaxattn.pipeline.task_predictions",
    "applied_probe_report": "flaxattn.reports.probes",
    "apply_probe": "flaxattn.probes.head_probe",
    "atlas_view": "flaxattn.views.trace_views",
    "attention_flow": "flaxattn.attribution.rollout",
    "attention_gradients": "flaxattn.attribution.attribution_maps",
    "attention_norms": "flaxattn.attribution.attribution_maps",
    "chefer_relevance": "flaxattn.attribution.relevance",
    "circuits_report": "flaxattn.reports.circuits",
    "classify": "flaxattn.pipeline.task_predictions",
    "compare": "flaxattn.reports.compare",
    "compare_traces": "flaxattn.measures.divergence",
    "compare_view": "flaxattn.views.trace_views",
    "contributions": "flaxattn.attribution.contributions",
    "coreference_report": "flaxattn.reports.probes",
    "detect_heads": "flaxattn.measures.induction",
    "effective_attention": "flaxattn.attribution.attribution_maps",
    "embed": "flaxattn.pipeline.embed",
    "extract": "flaxattn.pipeline.extraction",
    "extract_models": "flaxattn.pipeline.extraction",
    "extract_to": "flaxattn.store.extract_to",
    "faithfulness": "flaxattn.attribution.faithfulness",
    "faithfulness_report": "flaxattn.reports.faithfulness",
    "fill_mask": "flaxattn.pretrained.token_probabilities",
    "from_huggingface": "flaxattn.trace.other_libraries",
    "from_inseq": "flaxattn.trace.other_libraries",
    "from_pretrained": "flaxattn.pretrained.from_pretrained",
    "from_transformer_lens": "flaxattn.trace.other_libraries",
    "head_circuits": "flaxattn.attribution.head_circuits",
    "head_concordance": "flaxattn.measures.head_concordance",
    "head_coreference": "flaxattn.probes.head_coreference",
    "head_importance": "flaxattn.attribution.ablation",
    "head_patterns": "flaxattn.measures.claims",
    "head_probe": "flaxattn.probes.head_probe",
    "head_projections": "flaxattn.pretrained.head_projections",
    "head_roles": "flaxattn.measures.head_roles",
    "head_stats": "flaxattn.measures.head_roles",
    "head_task": "flaxattn.attribution.head_losses",
    "head_view": "flaxattn.views.trace_views",
    "heads_report": "flaxattn.reports.heads",
    "index_heads": "flaxattn.measures.search",
    "kernels": "flaxattn.kernels",
    "label_probe": "flaxattn.probes.head_probe",
    "label_report": "flaxattn.reports.probes",
    "load_probe": "flaxattn.probes.probe_file",
    "logit_contributions": "flaxattn.attribution.logit_lens",
    "logit_lens": "flaxattn.attribution.logit_lens",
    "measure": "flaxattn.measures.head_roles",
    "model_view": "flaxattn.views.trace_views",
    "neuron_view": "flaxattn.views.trace_views",
    "open_store": "flaxattn.store.open_store",
    "patch": "flaxattn.attribution.patching",
    "patch_report": "flaxattn.reports.patching",
    "plot_alignment": "flaxattn.views.figures.plot_alignment",
    "plot_atlas": "flaxattn.views.figures.plot_atlas",
    "plot_circuits": "flaxattn.views.figures.plot_circuits",
    "plot_compare": "flaxattn.views.figures.plot_atlas",
    "plot_composition": "flaxattn.views.figures.plot_circuits",
    "plot_concordance": "flaxattn.views.figures.plot_head_numbers",
    "plot_faithfulness": "flaxattn.views.figures.plot_interventions",
    "plot_head_scores": "flaxattn.views.figures.plot_head_numbers",
    "plot_head_values": "flaxattn.views.figures.plot_head_numbers",
    "plot_heads": "flaxattn.views.figures.plot_heads",
    "plot_logit_lens": "flaxattn.views.figures.plot_predictions",
    "plot_model": "flaxattn.views.figures.plot_heads",
    "plot_neuron": "flaxattn.views.figures.plot_neuron",
    "plot_patch_effects": "flaxattn.views.figures.plot_interventions",
    "plot_positions": "flaxattn.views.figures.plot_positions",
    "plot_role_grid": "flaxattn.views.figures.plot_roles",
    "plot_role_overlap": "flaxattn.views.figures.plot_roles",
    "plot_roles": "flaxattn.views.figures.plot_roles",
    "plot_state": "flaxattn.views.figures.plot_state",
    "plot_token_losses": "flaxattn.views.figures.plot_predictions",
    "probe_report": "flaxattn.reports.probes",
    "pruning_curve": "flaxattn.attribution.ablation",
    "read_report": "flaxattn.measures.read_report",
    "relevance": "flaxattn.attribution.relevance",
    "roles_report": "flaxattn.reports.roles",
    "rollout": "flaxattn.attribution.rollout",
    "sample_files": "flaxattn.corpus.sample_files",
    "sample_treebank": "flaxattn.corpus.sample_files",
    "save_figure": "flaxattn.views.figures.figure_style",
    "save_probe": "flaxattn.probes.probe_file",
    "search_heads": "flaxattn.measures.search",
    "site_values": "flaxattn.models.interventions",
    "stats_report": "flaxattn.reports.stats",
    "structural_probe": "flaxattn.probes.head_probe",
    "structural_report": "flaxattn.reports.probes",
    "text_view": "flaxattn.views.trace_views",
    "token_losses": "flaxattn.attribution.token_losses",
    "token_scores": "flaxattn.attribution.faithfulness",
    "untrained": "flaxattn.pretrained.from_pretrained",
    "value_zeroing": "flaxattn.attribution.attribution_maps",
    "weights": "flaxattn.reports.weights",
    "with_interventions": "flaxattn.models.interventions",
}
__all__ = [  # a list in this file, so that type checkers can read it
    "BertConfig",
    "Capture",
    "DecoderConfig",
    "Faithfulness",
    "GPT2Config",
    "HeadTask",
    "Intervention",
    "OnlineMoments",
    "PageOptions",
    "PatchRequest",
    "Pretrained",
    "ReadingOptions",
    "Report",
    "RnnConfig",
    "Seq2SeqConfig",
    "Sieve",
    "T5Config",
    "TextPair",
    "TokenLosses",
    "Trace",
    "__version__",
    "ablate",
    "ablation_report",
    "answer_question",
    "applied_probe_report",
    "apply_probe",
    "atlas_view",
    "attention_flow",
    "attention_gradients",
    "attention_norms",
    "chefer_relevance",
    "circuits_report",
    "classify",
    "compare",
    "compare_traces",
    "compare_view",
    "contributions",
    "coreference_report",
    "detect_heads",
    "effective_attention",
    "embed",
    "extract",
    "extract_models",
    "extract_to",
    "faithfulness",
    "faithfulness_report",
    "fill_mask",
    "from_huggingface",
    "from_inseq",
    "from_pretrained",
    "from_transformer_lens",
    "head_circuits",
    "head_concordance",
    "head_coreference",
    "head_importance",
    "head_patterns",
    "head_probe",
    "head_projections",
    "head_roles",
    "head_stats",
    "head_task",
    "head_view",
    "heads_report",
    "index_heads",
    "kernels",
    "label_probe",
    "label_report",
    "load_probe",
    "logit_contributions",
    "logit_lens",
    "measure",
    "model_view",
    "neuron_view",
    "open_store",
    "patch",
    "patch_report",
    "plot_alignment",
    "plot_atlas",
    "plot_circuits",
    "plot_compare",
    "plot_composition",
    "plot_concordance",
    "plot_faithfulness",
    "plot_head_scores",
    "plot_head_values",
    "plot_heads",
    "plot_logit_lens",
    "plot_model",
    "plot_neuron",
    "plot_patch_effects",
    "plot_positions",
    "plot_role_grid",
    "plot_role_overlap",
    "plot_roles",
    "plot_state",
    "plot_token_losses",
    "probe_report",
    "pruning_curve",
    "read_report",
    "relevance",
    "roles_report",
    "rollout",
    "sample_files",
    "sample_treebank",
    "save_figure",
    "save_probe",
    "search_heads",
    "site_values",
    "stats_report",
    "structural_probe",
    "structural_report",
    "text_view",
    "token_losses",
    "token_scores",
    "untrained",
    "value_zeroing",
    "weights",
    "with_interventions",
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
