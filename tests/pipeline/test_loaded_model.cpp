// Which parts are in memory when, and what happens when there is no room.
#include <flux2/log.hpp>
#include "pipeline/loaded_model.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flux2 {
namespace {

Model small_model() {
    return open_model(
        {test::fixture("klein/flux2.safetensors"), test::fixture("klein/text_encoder.safetensors"),
         test::fixture("klein/vae.safetensors")},
        "klein");
}

TEST_CASE("parts take turns, or stay when they are to be kept") {
    const Model model = small_model();
    LoadOptions options;
    options.device = "CPU";
    options.type = "F32";
    LoadedModel loaded_model(model, options);
    std::vector<Part> loaded;
    loaded_model.set_on_load([&](Part part) { loaded.push_back(part); });
    loaded_model.transformer();
    const uint64_t transformer = loaded_model.memory().host;
    loaded_model.vae();
    loaded_model.transformer();
    CHECK(loaded == std::vector<Part>{Part::transformer, Part::vae, Part::transformer});
    CHECK(loaded_model.memory().host == transformer);
    CHECK(transformer > 0);

    loaded_model.set_keeps_loaded(true);
    loaded_model.free_all();
    CHECK(loaded_model.memory().host == 0);
    loaded_model.transformer();
    loaded_model.vae();
    loaded_model.transformer();
    CHECK(loaded.size() == 5);
    CHECK(loaded_model.memory().host > transformer);
}

TEST_CASE("a part that finds no memory tries again with the others freed, then gives up") {
    const Model model = small_model();
    LoadOptions options;
    options.device = "CPU";
    options.keep_loaded = true;
    LoadedModel loaded_model(model, options);
    loaded_model.vae();
    std::string told;
    set_log([&](LogLevel, const std::string& line) { told += line + "\n"; });
    int tries = 0;
    const auto error = test::error_of([&] {
        loaded_model.run(Part::transformer, [&]() -> int {
            ++tries;
            throw Error(ErrorKind::out_of_memory, "full");
        });
    });
    set_log({});
    CHECK(tries == 2);
    CHECK(error.kind == ErrorKind::out_of_memory);
    CHECK(told.find("not enough memory for the transformer (full)") != std::string::npos);
    CHECK(told.find("the other parts are freed first") != std::string::npos);
    // Other failures are no reason to try again.
    tries = 0;
    CHECK(test::error_of([&] {
              loaded_model.run(Part::transformer, [&]() -> int {
                  ++tries;
                  throw Error(ErrorKind::backend, "broken");
              });
          }).kind == ErrorKind::backend);
    CHECK(tries == 1);
    CHECK(loaded_model.run(Part::vae, [] { return 7; }) == 7);
}

TEST_CASE("devices that failed to start are started by the next try") {
    const Model model = small_model();
    LoadOptions options;
    options.device = "CPU";
    LoadedModel loaded_model(model, options);
    loaded_model.vae();
    options.device = "no such device";
    CHECK(test::error_of([&] { loaded_model.restart(); }).kind == ErrorKind::bad_argument);
    CHECK_FALSE(loaded_model.is_started());
    CHECK(test::error_of([&] { loaded_model.restart(); }).kind == ErrorKind::bad_argument);
    CHECK(loaded_model.device() == "CPU");
    CHECK(loaded_model.memory().host == 0);
    options.device = "CPU";
    loaded_model.restart();
    CHECK(loaded_model.is_started());
    CHECK(loaded_model.devices().size() == 1);
    loaded_model.vae();
}

}  // namespace
}  // namespace flux2
