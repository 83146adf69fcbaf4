// Writes a Qwen3 of two narrow layers with the real vocabulary, random weights in BF16, as Hugging Face stores it.
// Usage: node small_qwen3.mjs FOLDER
import fs from "node:fs";

const hidden = 64, heads = 4, keyHeads = 2, headDim = 16, ffn = 96, layers = 2, vocabulary = 151936;

function tensors() {
    const list = [["model.embed_tokens.weight", [vocabulary, hidden]], ["model.norm.weight", [hidden]]];
    for (let i = 0; i < layers; ++i) {
        const p = `model.layers.${i}.`;
        list.push([p + "input_layernorm.weight", [hidden]], [p + "post_attention_layernorm.weight", [hidden]],
            [p + "self_attn.q_proj.weight", [heads * headDim, hidden]], [p + "self_attn.k_proj.weight", [keyHeads * headDim, hidden]],
            [p + "self_attn.v_proj.weight", [keyHeads * headDim, hidden]], [p + "self_attn.o_proj.weight", [hidden, heads * headDim]],
            [p + "self_attn.q_norm.weight", [headDim]], [p + "self_attn.k_norm.weight", [headDim]],
            [p + "mlp.gate_proj.weight", [ffn, hidden]], [p + "mlp.up_proj.weight", [ffn, hidden]],
            [p + "mlp.down_proj.weight", [hidden, ffn]]);
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
const folder = process.argv[2];
fs.writeFileSync(`${folder}/model.safetensors`, Buffer.concat([length, json, Buffer.from(values.buffer)]));
fs.writeFileSync(`${folder}/config.json`, JSON.stringify({
    architectures: ["Qwen3ForCausalLM"], model_type: "qwen3", hidden_size: hidden, num_hidden_layers: layers,
    num_attention_heads: heads, num_key_value_heads: keyHeads, head_dim: headDim, intermediate_size: ffn, vocab_size: vocabulary,
    rms_norm_eps: 1e-6, rope_theta: 1000000, max_position_embeddings: 40960, tie_word_embeddings: true
}));
