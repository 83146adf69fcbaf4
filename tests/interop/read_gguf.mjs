// Reads GGUF files by Hugging Face's parser and checks what other programs rely on.
// Usage: node read_gguf.mjs FILE...
import assert from "node:assert/strict";
import fs from "node:fs";
import {GGMLQuantizationType, gguf} from "@huggingface/gguf";

// Values and bytes of a block, by type; other types do not occur in files of ours.
const blocks = {F32: [1, 4], F16: [1, 2], BF16: [1, 2], Q8_0: [32, 34], Q4_0: [32, 18], Q4_1: [32, 20], Q5_0: [32, 22], Q5_1: [32, 24],
    Q2_K: [256, 84], Q3_K: [256, 110], Q4_K: [256, 144], Q5_K: [256, 176], Q6_K: [256, 210], IQ4_NL: [32, 18], IQ4_XS: [256, 136],
    MXFP4: [32, 17]};
// What stands in docs/formats.md, by architecture.
const textKeys = (name) => [`${name}.block_count`, `${name}.embedding_length`, `${name}.attention.head_count`, "tokenizer.ggml.model",
    "tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type"];
const known = {
    "flux": ["general.quantization_version", "flux2.variant", "flux2.rope_theta"],
    "qwen3": textKeys("qwen3"),
    "llama": textKeys("llama"),
    "flux2-vae": []
};
const kept = /^(img_in|txt_in|time_in|guidance_in|final_layer)/;

function bytesOf(tensor) {
    const type = GGMLQuantizationType[tensor.dtype];
    assert.ok(type in blocks, `${tensor.name} has type ${tensor.dtype}`);
    const [values, bytes] = blocks[type];
    const n = tensor.shape.reduce((a, b) => a * Number(b), 1);
    assert.equal(Number(tensor.shape[0]) % values, 0, `${tensor.name}: rows are whole blocks`);
    return n / values * bytes;
}

for (const file of process.argv.slice(2)) {
    const {metadata, tensorInfos, tensorDataOffset} = await gguf(file, {allowLocalFile: true});
    assert.equal(metadata.version, 3);
    assert.equal(typeof metadata["general.architecture"], "string");
    assert.equal(typeof metadata["general.file_type"], "number");
    assert.equal(Number(metadata.tensor_count), tensorInfos.length);
    const family = Object.keys(known).find((name) => name === metadata["general.architecture"]);
    assert.ok(family, `${file}: architecture ${metadata["general.architecture"]}`);
    for (const key of known[family]) {
        assert.ok(key in metadata, `${file}: key ${key} is missing`);
    }
    const alignment = Number(metadata["general.alignment"] ?? 32);
    assert.equal(Number(tensorDataOffset) % alignment, 0);
    let end = 0;
    for (const tensor of tensorInfos) {
        assert.equal(Number(tensor.offset) % alignment, 0, `${tensor.name} is aligned`);
        assert.ok(Number(tensor.offset) >= end, `${tensor.name} overlaps the one before`);
        assert.ok(tensor.name.length < 128 && tensor.shape.length <= 4);
        end = Number(tensor.offset) + bytesOf(tensor);
        // ComfyUI-GGUF's rules: vectors in F32, and what is outside the blocks not quantised.
        const type = GGMLQuantizationType[tensor.dtype];
        if (tensor.shape.length === 1) {
            assert.equal(type, "F32", `${tensor.name} is a vector`);
        }
        if (kept.test(tensor.name)) {
            assert.ok(["F32", "F16", "BF16"].includes(type), `${tensor.name} is ${type}`);
        }
    }
    assert.ok(fs.statSync(file).size >= Number(tensorDataOffset) + end, "the file holds all tensors");
    console.log(`${file}: ${metadata["general.architecture"]}, ${tensorInfos.length} tensors`);
}
