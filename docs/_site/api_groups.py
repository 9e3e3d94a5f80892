# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The one table of the API reference: every public name, by theme.

A test compares it with `flaxattn.__all__`; a name that is missing here fails it.
"""

from typing import NamedTuple


class Group(NamedTuple):
    """A page of the reference.

    Attributes:
        title: Its heading.
        text: A sentence or two below it.
        names: Public names, in their order on the page, as attributes of `module`.
        module: Where they are imported from.
    """

    title: str
    text: str
    names: tuple[str, ...]
    module: str = "flaxattn"


GROUPS: dict[str, Group] = {
    "models": Group(
        "Models and configurations",
        "Load a model, make a new one, and let it read or write text.",
        (
            *(
                "from_pretrained",
                "Pretrained",
                "untrained",
                "fill_mask",
                "answer_question",
                "classify",
                "embed",
            ),
            *("BertConfig", "GPT2Config", "DecoderConfig", "Seq2SeqConfig", "T5Config"),
            *("RnnConfig", "__version__"),
        ),
    ),
    "capture": Group(
        "Capture requests and traces",
        "Say what attention should be returned, and read it.",
        (
            *("Capture", "Sieve", "Trace", "from_huggingface", "from_transformer_lens"),
            *("from_inseq", "compare_traces"),
        ),
    ),
    "views": Group(
        "Attention pages",
        "Each returns a page: one HTML file that opens without a network. `page.save(path)` "
        "writes it, and the last line of a notebook cell shows it.",
        (
            *("head_view", "model_view", "neuron_view", "text_view", "atlas_view"),
            "compare_view",
        ),
    ),
    "figures": Group(
        "Figures",
        "Each returns a matplotlib figure; `fa.save_figure` writes it as SVG, PDF or PNG.",
        (
            *("plot_heads", "plot_model", "plot_atlas", "plot_neuron", "plot_alignment"),
            *("plot_positions", "plot_compare", "plot_state", "plot_head_scores"),
            *("plot_head_values", "plot_roles", "plot_role_grid", "plot_role_overlap"),
            *("plot_circuits", "plot_composition", "plot_logit_lens", "plot_faithfulness"),
            *("plot_token_losses", "plot_patch_effects", "plot_concordance", "save_figure"),
        ),
    ),
    "measures": Group(
        "Measures of heads",
        "Numbers of every head over texts, a trace or a store, and the tests of roles.",
        (
            *("measure", "head_stats", "head_patterns", "head_roles", "detect_heads"),
            *("head_concordance", "index_heads", "search_heads", "OnlineMoments"),
        ),
    ),
    "reports": Group(
        "Reports",
        "What was measured over texts as facts, a table, figures and a page; `report.save(folder)` "
        "writes all of it, as the command of the same name does.",
        (
            "roles_report",
            "stats_report",
            "ablation_report",
            "patch_report",
            "probe_report",
            "structural_report",
            "label_report",
            "applied_probe_report",
            "coreference_report",
            "faithfulness_report",
            "circuits_report",
            "heads_report",
            "compare",
            "weights",
            "Report",
            "read_report",
            "PageOptions",
            "ReadingOptions",
        ),
    ),
    "extraction": Group(
        "Extraction and stores",
        "Read the attention of a corpus as a stream or into a store on disk.",
        ("extract", "extract_to", "extract_models", "open_store"),
    ),
    "attribution": Group(
        "Attribution",
        "What attention weights leave out: values, gradients, layers above each other, relevance.",
        (
            *("contributions", "attention_norms", "attention_gradients", "effective_attention"),
            *("value_zeroing", "rollout", "attention_flow", "relevance", "chefer_relevance"),
            *("token_scores", "faithfulness", "Faithfulness", "logit_contributions"),
            *("logit_lens", "head_circuits", "head_projections"),
        ),
    ),
    "interventions": Group(
        "Interventions and ablation",
        "Change what a model computes and see what follows.",
        (
            *("Intervention", "with_interventions", "site_values", "patch", "PatchRequest"),
            *(
                "TextPair",
                "head_task",
                "HeadTask",
                "ablate",
                "head_importance",
                "pruning_curve",
                "token_losses",
                "TokenLosses",
            ),
        ),
    ),
    "probes": Group(
        "Probes",
        "Ask heads and hidden states for syntax and coreference.",
        (
            *("head_probe", "label_probe", "structural_probe", "head_coreference", "apply_probe"),
            *("save_probe", "load_probe"),
        ),
    ),
    "samples": Group(
        "Sample data",
        "Small files of our own, to try commands and functions on.",
        ("sample_files", "sample_treebank"),
    ),
    "types": Group(
        "Types that are returned",
        "What the functions of the other pages return, and the errors that they raise.",
        (
            *(
                "pretrained.pretrained_encoders.PretrainedBert",
                "pipeline.task_predictions.LabelScore",
            ),
            *("pipeline.task_predictions.Answer", "probes.label_probe.LabelJudged"),
            *("pretrained.pretrained_decoder.PretrainedDecoder",),
            *("pretrained.pretrained_seq2seq.PretrainedSeq2Seq",),
            *("trace.record.AttentionRecord", "trace.token_predictions.Predictions"),
            *("store.open_store.Store", "measures.scores.ScoreAccumulator"),
            *("measures.role_tests.Roles", "measures.role_tests.Test", "measures.claims.Label"),
            *("measures.induction.HeadScores", "measures.search.Hit"),
            *("pretrained.head_projections.HeadProjections",),
            *("measures.divergence.HeadDivergence", "attribution.ablation.HeadEffects"),
            *("attribution.patch_effects.PatchReport",),
            *("measures.head_concordance.HeadConcordance",),
            *("attribution.relevance.Relevance",),
            *("errors.FlaxattnError", "errors.InputError", "errors.CheckpointError"),
            *("errors.UnavailableError", "errors.StoreError"),
        ),
    ),
    "kernels": Group(
        "Kernels",
        "Attention on arrays, below all of it. It has never heard of a model, and imports "
        "neither Flax nor the rest of the package.",
        ("kernels",),
    ),
    "kernels-attention": Group(
        "flaxattn.kernels.attention",
        "The function, and which implementations run here.",
        ("attention", "implementations"),
        "flaxattn.kernels.attention",
    ),
    "kernels-contract": Group(
        "flaxattn.kernels.contract",
        "What every implementation promises: letters, layouts, masking rules, and the types of a "
        "call. `Capture` and `Sieve` are those of `flaxattn`.",
        ("Labels", "Dropout", "Edits", "Intermediates"),
        "flaxattn.kernels.contract",
    ),
}
