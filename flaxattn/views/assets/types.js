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
 *
 * @typedef {Object} SideAbout
 * @property {string} name encoder, decoder, cross or all
 * @property {string[]} left names of the texts that stand on the left
 * @property {string[]} right names of the texts that stand on the right
 * @property {number[]} layers numbers of layers
 * @property {number[]} heads numbers of heads
 * @property {string[]} [weights] names of blocks, one per layer; none of the joined square
 * @property {Object<string, [number, number, number][]>} [pairs] gold pairs by claim: query, first and last key
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
 * @property {any} [neuron] what the neuron level shows of the side
 *
 * @typedef {Object} InputAbout
 * @property {number} truncated how many tokens were cut off
 * @property {Object<string, TextAbout>} texts by name
 * @property {SideAbout[]} sides
 *
 * @typedef {Object} Payload
 * @property {string} model
 * @property {"float16"|"uint8"} precision
 * @property {number} error
 * @property {Object<string, any>} start a state, as `State.json` gives it
 * @property {string[]} levels those there is data for
 * @property {InputAbout[]} inputs
 * @property {Object<string, [number, number]>} blocks where each begins and ends in the bytes, by name
 * @property {string} data the bytes as base64, until they are unpacked
 * @property {boolean} compressed whether the data are compressed
 * @property {Uint8Array<ArrayBuffer>} [bytes] the bytes, once they are unpacked
 * @property {string[]} [names] what the two traces are called, of a page that compares
 * @property {Object<string, string>} [told] what numbers of heads were measured by
 * @property {string} [note] what stands at the foot of the page
 * @property {Report} [report] what is claimed of heads, of a page with evidence
 *
 * @typedef {Object} Claim
 * @property {string} name
 * @property {string} side
 * @property {number} layer its number
 * @property {number} head its number
 * @property {number} value what it rests on
 * @property {string} told what else is known
 * @property {[number, number, number][]} shown places in `inputs`, numbers in the corpus and scores of texts
 *
 * @typedef {Object} Report
 * @property {string} title
 * @property {string} about what was measured, and how
 * @property {string} measured what the numbers are: score, mean, …
 * @property {string} lacking which claims the page has no text of
 * @property {Object<string, Object<string, (number|null)[][]>>} values by side and name, of every layer and head
 * @property {Claim[]} claims
 */

export {};
