// Where the tests' files are, each path compiled into one file (support/folders.cpp): the other
// files are the same in every folder, so that what ccache keeps of one clone serves all.
#pragma once

namespace flux2::test {

const char* tiny_model();       // the bundled model's folder, models/tiny
const char* recorded_folder();  // fixtures, unpacked into the build folder
const char* fuzz_corpus();      // tests/fuzz/corpus
const char* qwen3_tokenizer();  // the public tokenizer.json, which ctest fetches

}  // namespace flux2::test
