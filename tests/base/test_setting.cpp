// Settings in messages, in plain names and in a program's words.
#include <flux2/error.hpp>
#include "base/check.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

// As a server would: the fields of its requests.
std::string json_field(Setting setting) {
    return concat('"', setting == Setting::type ? "weight_type" : to_string(setting), '"');
}

TEST_CASE("an error names settings by their fields, and in the words of the program that asks") {
    try {
        fail(ErrorKind::out_of_memory, "klein.gguf takes 4000 MB; use a smaller ", Setting::type,
             " or another ", Setting::device);
    } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::out_of_memory);
        CHECK(error.what() == std::string("klein.gguf takes 4000 MB; use a smaller `type` or "
                                          "another `device`"));
        CHECK(error.message(json_field) ==
              "klein.gguf takes 4000 MB; use a smaller \"weight_type\" or another \"device\"");
    }
}

TEST_CASE("settings are worded in texts that were put together from others") {
    const auto inner = test::error_of(
        [] { fail(ErrorKind::bad_file, "no autoencoder: add ", Setting::vae, " FILE"); });
    const std::string outer = concat("run-3.png (", inner.message, ")");
    CHECK(worded(outer, json_field) == "run-3.png (no autoencoder: add \"vae\" FILE)");
}

TEST_CASE("nothing but settings is worded") {
    const SettingWording never = [](Setting) -> std::string { throw std::logic_error("asked"); };
    for (const std::string text : {"", "type", "`", "``", "`type", "type`", "`types`", "` type`",
                                   "`Type`", "a `file` of the `typ"}) {
        CAPTURE(text);
        CHECK(worded(text, never) == text);
    }
}

TEST_CASE("words of a program are not worded again") {
    const SettingWording crossed = [](Setting setting) {
        return concat(setting == Setting::vae ? Setting::taesd : Setting::vae);
    };
    CHECK(worded("`vae```taesd`", crossed) == "`taesd```vae`");
}

}  // namespace
}  // namespace flux2
