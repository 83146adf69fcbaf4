#include "support/folders.hpp"

namespace flux2::test {

const char* tiny_model() {
    return FLUX2_TINY_MODEL;
}

const char* recorded_folder() {
    return FLUX2_TEST_FIXTURES;
}

const char* fuzz_corpus() {
    return FLUX2_TEST_CORPUS;
}

const char* qwen3_tokenizer() {
    return FLUX2_QWEN3_TOKENIZER;
}

}  // namespace flux2::test
