#include "pipeline/progress.hpp"

namespace flux2 {

const char* to_string(Stage stage) {
    switch (stage) {
        case Stage::load:
            return "loading";
        case Stage::encode_prompt:
            return "encoding the prompt";
        case Stage::encode_references:
            return "encoding pictures";
        case Stage::denoise:
            return "denoising";
        case Stage::decode:
            return "decoding";
    }
    return "working";
}

}  // namespace flux2
