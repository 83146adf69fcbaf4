// What a pipeline does with the plan of a job's memory.
#include "pipeline/job_memory.hpp"

#include "support/folders.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

TEST_CASE("parts stay loaded again after a job for which they did not") {
    const Model model = open_model(find_model(test::tiny_model()).files, "");
    LoadOptions options;
    options.device = "CPU";
    options.threads = 1;
    options.keep_loaded = true;
    const TensorCache cache("", 0);
    LoadedModel loaded_model(model, options);
    JobMemory memory(model, options, cache, loaded_model);
    Job job;
    job.width = job.height = 64;
    job.text_length = 32;
    memory.prepare(job);
    CHECK(loaded_model.keeps_loaded());
    // As a job leaves it whose parts do not fit together.
    loaded_model.set_keeps_loaded(false);
    memory.prepare(job);
    CHECK(loaded_model.keeps_loaded());

    options.keep_loaded = false;
    memory.restart();
    memory.prepare(job);
    CHECK(!loaded_model.keeps_loaded());
}

}  // namespace
}  // namespace flux2
