// Where the library names a setting, each program names its own option.
#include <flux2/flux2.hpp>
#include "base/log.hpp"
#include "common/options.hpp"
#include "support/cli.hpp"
#include "support/folders.hpp"
#include "support/png_builder.hpp"

#include <doctest/doctest.h>
#include <cxxopts.hpp>
#include <nlohmann/json.hpp>

#include <array>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::fixture;
using test::has;
using test::joined;
using test::small_picture;

std::string klein(const std::string& part) {
    return fixture("klein/" + part + ".safetensors").string();
}

// The klein fixture under a name that does not tell its variant.
fs::path write_nameless(const test::TemporaryFolder& folder) {
    const fs::path file = folder / "x.safetensors";
    fs::copy_file(klein("flux2"), file);
    return file;
}

TEST_CASE("every option that messages are worded with is one of the program") {
    cxxopts::Options options("flux2");
    cli::add_model_options(options);
    cli::add_generate_options(options);
    for (const Setting setting :
         {Setting::transformer, Setting::text_encoder, Setting::vae, Setting::taesd,
          Setting::folder, Setting::device, Setting::type, Setting::variant, Setting::cache_folder,
          Setting::split, Setting::fit_size, Setting::reference_pixels, Setting::init,
          Setting::inpaint_area, Setting::mask_invert, Setting::adapters, Setting::cfg_scale,
          Setting::alpha}) {
        const std::string option = cli::option_of(setting);
        CAPTURE(option);
        const std::string value = "x";
        const std::array<const char*, 3> argv = {"flux2", option.c_str(), value.c_str()};
        CHECK_NOTHROW(options.parse(static_cast<int>(argv.size()), argv.data()));
    }
}

TEST_CASE("an error names a field to who calls the library and an option to who runs flux2") {
    ModelFiles files;
    files.vae = klein("vae");
    const auto error = test::error_of([&] { Pipeline::load(files); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.message ==
          "no transformer: add `transformer` FILE, or `folder` FOLDER with one in it");
    const auto program = test::flux2_program({"--vae", klein("vae"), "-p", "x"});
    CHECK(program.exit_code == 3);
    CHECK(has(program.err,
              "flux2: no transformer: add --diffusion-model FILE, or -m FOLDER with one in it"));
}

TEST_CASE("an event for a program that runs flux2 names the option too") {
    const auto result =
        test::flux2_program(joined(small_picture(), {"-p", "x", "-W", "100", "--json"}));
    CHECK(result.exit_code == 2);
    const auto event = nlohmann::json::parse(test::lines_of(result.out).back());
    CHECK(event.at("event") == "error");
    CHECK(has(event.at("text"), "use 96 or 112, or --fit to round"));
    CHECK(has(result.err, "or --fit to round"));
}

TEST_CASE("warnings name the option") {
    using namespace test;
    const TemporaryFolder folder;
    const fs::path see_through = folder / "clear.png";
    write_file(see_through, png(64, 64, 8, grey_alpha, Bytes(64 * (1 + 2 * 64))));
    const auto result =
        flux2_program(joined(small_picture(), {"-p", "x", "-r", see_through.string(), "-o",
                                               (folder / "x.png").string()}));
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "--alpha white blends them with white"));
    CHECK_FALSE(has(result.err, "`"));
}

TEST_CASE("a cache that cannot be kept is switched off with an option") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "file", "no folder");
    const auto result = test::flux2_program(
        {"-m", test::tiny_model(), "-p", "a red house", "-W", "64", "-H", "64", "--steps", "1",
         "--cache", (folder / "file/cache").string(), "-o", (folder / "x.png").string()});
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "nothing is kept in the cache"));
    CHECK(has(result.err, "; switch it off with --no-cache"));
}

TEST_CASE("flux2 info and flux2-convert name their options for the variant") {
    const test::TemporaryFolder folder;
    const std::string file = write_nameless(folder).string();
    const std::string plain = inspect_file(file).variant_reason;
    CHECK(plain == "nothing says otherwise; `variant` base or kv overrides");
    const std::string said = "nothing says otherwise; --variant base or kv overrides";
    CHECK(has(test::flux2_program({"info", file}).out, said));
    const auto json = nlohmann::json::parse(test::flux2_program({"info", "--json", file}).out);
    CHECK(json.at("files").at(0).at("variant_reason") == said);

    const std::string convert =
        test::convert_path() + " --dry-run -o " + (folder / "x.gguf").string() + " " + file;
    CHECK(has(test::run_program(convert).out, said));
    CHECK(has(test::run_program(convert + " --variant base").out, "given by --variant)"));
    const auto wrong = test::run_program(convert + " --variant dev");
    CHECK(wrong.exit_code == 2);
    CHECK(has(wrong.err, "has no guidance input, so it is not dev; leave out --variant or"));
}

}  // namespace
}  // namespace flux2
