# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of the tensors of the recurrent models in their checkpoints.

No other library has this model: the names are ours, and kernels lie `[out, in]` as everywhere on
disk.
"""

from flaxattn.pretrained.name_tables import Family, table

# Name, shape, ours, T: transposed
_ROWS = table("""
encoder.words.weight                    VM  words/embedding                        =
encoder.forward.input.weight            GM  encoder/forward/input/kernel           T
encoder.forward.input.bias              G   encoder/forward/input/bias             =
encoder.forward.recurrent.weight        GN  encoder/forward/recurrent              T
encoder.backward.input.weight           GM  encoder/backward/input/kernel          T
encoder.backward.input.bias             G   encoder/backward/input/bias            =
encoder.backward.recurrent.weight       GN  encoder/backward/recurrent             T
decoder.words.weight                    WM  decoder_words/embedding                =
decoder.start.weight                    NN  decoder/start/kernel                   T
decoder.start.bias                      N   decoder/start/bias                     =
decoder.unit.input.weight               GM  decoder/unit/input/kernel              T
decoder.unit.input.bias                 G   decoder/unit/input/bias                =
decoder.unit.recurrent.weight           GN  decoder/unit/recurrent                 T
decoder.unit.context.weight             GC  decoder/context                        T
decoder.cross_attention.query.weight    AN  decoder/cross_attention/query          T
decoder.cross_attention.key.weight      AC  decoder/cross_attention/key/kernel     T
decoder.cross_attention.key.bias        A   decoder/cross_attention/key/bias       =
decoder.cross_attention.score.weight    A   decoder/cross_attention/score          =
decoder.readout.weight                  OR  decoder/readout/kernel                 T
decoder.readout.bias                    O   decoder/readout/bias                   =
output.weight                           WL  output/kernel                          T
output.bias                             W   output/bias                            =
classifier.weight                       KC  classifier/kernel                      T
classifier.bias                         K   classifier/bias                        =
""")

RNN_NAMES = Family(
    name="flaxattn RNN",
    rows=_ROWS,
    prefix=("", ""),
    layers={},
    sizes={
        "V": "vocab_size",
        "W": "target_size",
        "M": "embedding_size",
        "N": "hidden_size",
        "G": "gates_size",
        "C": "encoded_size",
        "A": "attention_size",
        "R": "read_size",
        "O": "maxout_size",
        "L": "readout_size",
        "K": "num_labels",
    },
    core=("encoder.", "decoder.", "output."),
)
