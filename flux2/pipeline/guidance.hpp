// How a picture is guided: by a value that the model embeds, by a second pass with the negative
// prompt, by both or not at all.
#pragma once

#include <flux2/flux2.hpp>
#include "pipeline/model.hpp"
#include "pipeline/request.hpp"

namespace flux2 {

// Settles guidance, cfg_scale and which steps have two passes; the job must have its steps. Logs a
// warning for settings that have no effect on this model. Throws bad_argument.
void resolve_guidance(const Request& request, const Model& model, Job& job);

}  // namespace flux2
