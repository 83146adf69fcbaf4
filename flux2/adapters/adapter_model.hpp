// Which model an adapter was made for, by the shapes and names of its modules.
#pragma once

#include "adapters/adapter_module.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// "FLUX.2 klein 4B" where all modules fit that model and no other; "unknown" else.
std::string made_for(const std::vector<AdapterModule>& modules);

// What shows that it was made for FLUX.1: "its img_mlp.0 is 12288 wide, klein 4B's 18432". Empty
// when nothing does.
std::string flux1_evidence(const std::vector<AdapterModule>& modules);

// The model that has a module of this name, if it is a known one other than FLUX.1 and FLUX.2:
// "Qwen-Image"; else null.
const char* other_model_of(std::string_view stem);

}  // namespace flux2
