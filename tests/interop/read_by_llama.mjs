// Loads text encoders by llama.cpp and compares its tokenization with recorded or hand-made ids. llama.cpp does not normalise, so strings
// are taken that are in NFC already.
// Usage: node read_by_llama.mjs CASES FILE...
import assert from "node:assert/strict";
import fs from "node:fs";
import {getLlama} from "node-llama-cpp";

const [casesFile, ...files] = process.argv.slice(2);
const cases = JSON.parse(fs.readFileSync(casesFile, "utf8")).cases.filter((c) => c.text === c.text.normalize("NFC"));
const llama = await getLlama({build: "never", gpu: false, logLevel: "error", progressLogs: false});
for (const file of files) {
    const model = await llama.loadModel({modelPath: file});
    let compared = 0;
    for (const {text, ids} of cases) {
        assert.deepEqual([...model.tokenize(text, true)], ids, `${file}: ids of ${JSON.stringify(text)}`);
        ++compared;
    }
    assert.ok(compared > 0);
    const context = await model.createContext({contextSize: 64});  // its tensors are all there
    await context.dispose();
    await model.dispose();
    console.log(`${file}: loaded, ${compared} strings`);
}
process.exit(0);
