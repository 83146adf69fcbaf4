// Writes a language model of two narrow layers, random weights in BF16, as Hugging Face stores it: a Qwen3 with the rows of the real
// vocabulary, or a Mistral with a vocabulary of bytes and three words, its tokenizer.json and cases.json: texts and ids made by hand.
// Usage: node small_text_encoder.mjs qwen3|mistral FOLDER
import fs from "node:fs";

const [family, folder] = process.argv.slice(2);
const mistral = family === "mistral";
const hidden = 64, heads = mistral ? 2 : 4, keyHeads = mistral ? 1 : 2, headDim = 16, ffn = 96, layers = 2;
const vocabulary = mistral ? 320 : 151936;

function tensors() {
    const list = [["model.embed_tokens.weight", [vocabulary, hidden]], ["model.norm.weight", [hidden]]];
    for (let i = 0; i < layers; ++i) {
        const p = `model.layers.${i}.`;
        list.push([p + "input_layernorm.weight", [hidden]], [p + "post_attention_layernorm.weight", [hidden]],
            [p + "self_attn.q_proj.weight", [heads * headDim, hidden]], [p + "self_attn.k_proj.weight", [keyHeads * headDim, hidden]],
            [p + "self_attn.v_proj.weight", [keyHeads * headDim, hidden]], [p + "self_attn.o_proj.weight", [hidden, heads * headDim]],
            [p + "mlp.gate_proj.weight", [ffn, hidden]], [p + "mlp.up_proj.weight", [ffn, hidden]],
            [p + "mlp.down_proj.weight", [hidden, ffn]]);
        if (!mistral) {
            list.push([p + "self_attn.q_norm.weight", [headDim]], [p + "self_attn.k_norm.weight", [headDim]]);
        }
    }
    return list;
}

const header = {};
let bytes = 0;
for (const [name, shape] of tensors()) {
    const size = 2 * shape.reduce((a, b) => a * b, 1);
    header[name] = {dtype: "BF16", shape, data_offsets: [bytes, bytes + size]};
    bytes += size;
}
const json = Buffer.from(JSON.stringify(header));
const length = Buffer.alloc(8);
length.writeBigUInt64LE(BigInt(json.length));
const values = new Uint16Array(bytes / 2);
let state = 1;
for (let i = 0; i < values.length; ++i) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[i] = ((state >>> 31) << 15) | 0x3c00 | (state >>> 23 & 0xff);  // plus or minus 2^-7 to 2^-5
}
fs.mkdirSync(folder, {recursive: true});
fs.writeFileSync(`${folder}/model.safetensors`, Buffer.concat([length, json, Buffer.from(values.buffer)]));
fs.writeFileSync(`${folder}/config.json`, JSON.stringify({
    hidden_size: hidden, num_hidden_layers: layers, num_attention_heads: heads, num_key_value_heads: keyHeads, head_dim: headDim,
    intermediate_size: ffn, vocab_size: vocabulary, max_position_embeddings: 40960, tie_word_embeddings: true,
    ...(mistral ? {model_type: "mistral", rms_norm_eps: 1e-5, rope_theta: 1e9} : {model_type: "qwen3", rms_norm_eps: 1e-6, rope_theta: 1e6})
}));

// The special tokens under Tekken's ids, bytes from 20 on, then "ca" and "at", which merges make, and " cat", which none makes.
function tekken() {
    const special = Array.from({length: 20}, (_, id) => `<SPECIAL_${id}>`);
    Object.assign(special, {0: "<unk>", 1: "<s>", 2: "</s>", 3: "[INST]", 4: "[/INST]", 10: "[IMG]", 11: "<pad>", 17: "[SYSTEM_PROMPT]",
        18: "[/SYSTEM_PROMPT]"});
    const vocab = {};
    for (let byte = 0, next = 0x100; byte < 256; ++byte) {
        const printable = byte >= 33 && byte <= 126 || byte >= 161 && byte <= 172 || byte >= 174;
        vocab[String.fromCodePoint(printable ? byte : next++)] = 20 + byte;
    }
    Object.assign(vocab, {"ca": 276, "\u0120cat": 277, "at": 278});
    const upper = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", lower = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]", sign = "[^\\r\\n\\p{L}\\p{N}]?";
    const split = `${sign}${upper}*${lower}+|${sign}${upper}+${lower}*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
    return {
        added_tokens: special.map((content, id) => ({id, content, special: true})),
        pre_tokenizer: {type: "Split", pattern: {Regex: split}},
        model: {type: "BPE", ignore_merges: true, vocab, merges: ["c a", "a t"]}
    };
}

if (mistral) {
    fs.writeFileSync(`${folder}/tokenizer.json`, JSON.stringify(tekken()));
    fs.writeFileSync(`${folder}/cases.json`, JSON.stringify({cases: [
        {text: "<s>[INST]a car cat[/INST]", ids: [1, 3, 117, 52, 276, 134, 277, 4]},
        {text: "caat", ids: [276, 278]},
        {text: "A1/\n", ids: [85, 69, 67, 30]}
    ]}));
}
