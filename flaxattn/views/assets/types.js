// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The payload that Python hands to a page, as types. No code.

/**
 * @typedef {Object} TextAbout
 * @property {string[]} tokens
 * @property {number[]} special positions of what the model adds
 * @property {number|null} boundary where the second text of a pair begins
 * @property {string[]} [parts] what the text before the boundary is, and after it; sentences if absent
 * @property {(number|null)[]|null} words number of the word each token belongs to
 * @property {string[]} [passages] the texts that the tokens were made from, where known
 * @property {([number, number, number]|null)[]} [spans] passage, start and stop of each token in UTF-16 units; null of tokens that stand for no characters
 *
 * @typedef {Object} SideAbout
 * @property {string} name encoder, decoder, cross or all
 * @property {string[]} left names of the texts that stand on the left
 * @property {string[]} right names of the texts that stand on the right
 * @property {number[]} layers numbers of layers
 * @property {number[]} heads numbers of heads
 * @property {string[]} [weights] names of blocks, one per layer; none of the joined square
 * @property {Object<string, any>[][]} [measures] what each head of each layer does
 * @property {{order: number[], groups: number[], distances: string}} [likeness]
 * @property {SideAbout} [second] the same side of the trace that it is compared with
 * @property {Object<string, SideAbout>} [other] weights of other kinds than attention, by name
 * @property {string} [label] how a kind reads
 * @property {string} [about] what it is
 * @property {number[]} [peaks] what 1 stands for in each layer of a kind
 * @property {boolean} [shares] whether rows of a kind sum to one
 * @property {boolean} [signed] whether a kind has weights below 0
 * @property {boolean} [common] whether all heads share the map of a kind
 * @property {"float16"|"uint8"} [precision] of a kind
 * @property {PairsAbout[]} [pairs] gold pairs, one entry for each claim; also of the second of two traces
 * @property {any} [neuron] what the neuron level shows of the side
 *
 * @typedef {Object} PairsAbout
 * @property {string} name of the claim
 * @property {string} about what the pairs are, in words
 * @property {string} rule when a pair is hit, in words
 * @property {number[][]} pairs first and last query, then first and last of each run of keys
 * @property {string} hits name of a block: two bits for each layer, head and pair
 *
 * @typedef {Object} InputAbout
 * @property {number} truncated how many tokens were cut off
 * @property {Object<string, TextAbout>} texts by name
 * @property {SideAbout[]} sides
 * @property {PredictionsAbout} [predictions] of a language model
 *
 * @typedef {Object} PredictionsAbout next-token probabilities; blocks are described in `side_payload.py`
 * @property {Object<string, "after"|"here">} texts where a token of a text stands to what is predicted
 * @property {string[]} tokens those that are named
 * @property {number} count alternatives of each position
 * @property {number[]} ends positions where the text ends
 * @property {string} names a block of whole numbers
 * @property {string} scores a block of probabilities
 * @property {string} [parts] a block of contributions to the logit
 * @property {string[]} [heads] blocks of those of heads, one per layer of the decoder
 *
 * @typedef {Object} Payload
 * @property {string} model
 * @property {"float16"|"uint11"|"uint8"} precision
 * @property {number} error
 * @property {Object<string, any>} start a state, as `State.json` gives it
 * @property {string[]} levels those there is data for
 * @property {InputAbout[]} inputs
 * @property {Object<string, [number, number]>} blocks where each begins and ends in the bytes, by name
 * @property {string} data the bytes as base85, until they are unpacked
 * @property {boolean} compressed whether the data are compressed
 * @property {Uint8Array<ArrayBuffer>} [bytes] the bytes, once they are unpacked
 * @property {string[]} [names] what the two traces are called, of a page that compares
 * @property {{rule: string, heads: Object<string, Object<string, HeadClaim>>}} [changes] what is claimed of two traces, by side and `layer.head`
 * @property {Object<string, string>} [measured_by] what numbers of heads were measured by
 * @property {string} [note] what stands at the foot of the page
 * @property {Report} [report] what is claimed of heads, of a page with evidence
 *
 * @typedef {Object} HeadClaim the change of a head over all texts
 * @property {number} texts how many there are
 * @property {number} [divergence] in nats
 * @property {[number, number]} [interval] of it
 * @property {boolean} changed whether a change is claimed
 * @property {[string, string]} [role] what the head did and does, where a change of that is claimed
 *
 * @typedef {Object} Corpus what a server adds to the page of a text or of the atlas
 * @property {string} name of the page
 * @property {string} list address of the list of texts
 * @property {string} [id] of the text
 * @property {string} [place] of the text in its list
 * @property {string|null} [back] address of the text before it; null of the first
 * @property {string|null} [next] address of the text after it; null of the last
 * @property {string|null} [atlas] address of the atlas of the store
 * @property {string} [sort] address of lists that are sorted by a head
 *
 * @typedef {Object} Claim
 * @property {string} name
 * @property {string} side
 * @property {number} layer its number
 * @property {number} head its number
 * @property {number} value what it rests on
 * @property {string} detail what else is known
 * @property {[number, number, number][]} shown places in `inputs`, numbers in the corpus and scores of texts
 * @property {[number, number]|null} [interval] of the value
 * @property {ClaimExamples|null} [examples] pairs that the head weighs most and least
 *
 * @typedef {[number, number, number, string]} ClaimExample place of the text in `inputs`, place of the pair
 *   among the gold pairs of the claim, weight and outcome
 *
 * @typedef {Object} ClaimExamples
 * @property {ClaimExample[]} best
 * @property {ClaimExample[]} worst
 * @property {number} candidates number of pairs that these were chosen from
 * @property {number} texts number of texts that these are from
 *
 * @typedef {Object} HeadsAbout what the pages of heads show
 * @property {string} side its name
 * @property {number} texts number of texts that were measured
 * @property {string} level what the intervals are
 * @property {([string, number]|null)[][]} readings place that each head looks at, and the share of its attention
 * @property {number[][]} broken texts on which a head is NaN or infinite
 * @property {number} near_texts number of texts that distances are means over
 * @property {[number, number][][]} nearest for each head others by index, and their distances
 * @property {string} command command that measures effects
 * @property {string} effects_about what other reports measured
 * @property {Object<string, (number|null)[][][]>} effects numbers of other reports and the ends of their intervals, by name
 *
 * @typedef {Object} Report
 * @property {string} title
 * @property {string} about what was measured, and how
 * @property {string} measured what the numbers are: score, mean, …
 * @property {string} lacking which claims the page has no text of
 * @property {Object<string, Object<string, (number|null)[][]>>} values by side and name, of every layer and head
 * @property {Claim[]} claims
 * @property {HeadsAbout} [heads] of a report with a page for each head
 * @property {[string, string, string][]} families letter, name and shape of each family of claims
 * @property {Object<string, [number, number]>} marks by name of a claim: its family and its number there
 */

export {};
