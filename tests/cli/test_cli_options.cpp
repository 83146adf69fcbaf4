// Options of the command line: values, names of pictures, output.
#include "base/byte_size.hpp"
#include "base/log.hpp"
#include "commands/display.hpp"
#include "commands/generate.hpp"
#include "common/model_hash.hpp"
#include "common/options.hpp"
#include "common/output_name.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#ifndef _WIN32
#include <unistd.h>
#endif

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

ErrorKind kind_of(const std::function<void()>& function) {
    return test::error_of(function).kind;
}

TEST_CASE("numbers of bytes are read in powers of 1000") {
    const auto bytes = [](const char* text) { return parse_bytes("--x", text, "amount"); };
    CHECK(bytes("4G") == 4'000'000'000);
    CHECK(bytes("4GB") == 4'000'000'000);
    CHECK(bytes("1.5g") == 1'500'000'000);
    CHECK(bytes("2.5gb") == 2'500'000'000);
    CHECK(bytes("3500M") == 3'500'000'000);
    CHECK(bytes("2kb") == 2000);
    CHECK(bytes("800000000") == 800'000'000);
    CHECK(bytes("7B") == 7);
    for (const char* wrong : {"", "G", "4T", "4GiB", "4 G", "-4G", "0", "0.5", "nan", "inf", "4GG",
                              "1e300", "1e9", "1.2.3G", "9999999G", "lots", "4G4"}) {
        CAPTURE(wrong);
        CHECK(kind_of([&] { bytes(wrong); }) == ErrorKind::bad_argument);
    }
}

TEST_CASE("gigabytes are shown with two digits, rounded down") {
    CHECK(gigabytes(0) == "0 GB");
    CHECK(gigabytes(1'259'999'999) == "1.25 GB");
    CHECK(gigabytes(24'000'000'000) == "24 GB");
}

TEST_CASE("lists of numbers are read whole or refused") {
    CHECK(parse_floats("1,0.9,0.7,0") == std::vector<float>{1.0f, 0.9f, 0.7f, 0.0f});
    CHECK(parse_floats("0.5") == std::vector<float>{0.5f});
    CHECK(parse_floats("1, 0") == std::vector<float>{1.0f, 0.0f});
    for (const char* wrong : {"", ",", "1,", ",1", "1,,0", "a", "1;0", "1,0x", "nan", "1,inf"}) {
        CAPTURE(wrong);
        CHECK(kind_of([&] { parse_floats(wrong); }) == ErrorKind::bad_argument);
    }
}

TEST_CASE("numbers and seeds are read whole or refused") {
    CHECK(parse_int("x", "-17") == -17);
    CHECK(parse_int("x", "2147483647") == 2147483647);
    for (const char* wrong : {"", "2147483648", "1.5", "1 ", " 1", "0x10", "+1", "one"}) {
        CAPTURE(wrong);
        CHECK(kind_of([&] { parse_int("x", wrong); }) == ErrorKind::bad_argument);
    }
    CHECK(parse_float("x", "-1.5") == -1.5f);
    CHECK(parse_float("x", "1e2") == 100.0f);
    for (const char* wrong : {"", "1.5x", "1,5", "nan", "1e99"}) {
        CAPTURE(wrong);
        CHECK(kind_of([&] { parse_float("x", wrong); }) == ErrorKind::bad_argument);
    }
    CHECK(parse_seed("0") == 0);
    CHECK(parse_seed("9999999999999999999") == 9999999999999999999u);
    for (const char* wrong : {"", "-1", "1.0", "18446744073709551615", "x"}) {
        CAPTURE(wrong);
        CHECK(kind_of([&] { parse_seed(wrong); }) == ErrorKind::bad_argument);
    }
}

GenerateOptions options_of(std::vector<std::string> arguments, GenerateOptions o = {}) {
    cxxopts::Options options("flux2");
    add_model_options(options);
    add_generate_options(options);
    arguments.insert(arguments.begin(), "flux2");
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) {
        argv.push_back(argument.c_str());
    }
    read_generate_options(options.parse(static_cast<int>(argv.size()), argv.data()), o);
    return o;
}

TEST_CASE("filters count for every LoRA of a run, and options replace stored ones") {
    const std::vector<std::string> filters = {
        "--lora-include", "double", "--lora-exclude", "mlp", "--lora-blocks", "double=0.5"};
    std::vector<std::string> arguments = {"-p", "x", "--lora", "a,b:0.5", "--lora", "cd:-1"};
    GenerateOptions o = options_of(arguments);
    REQUIRE(o.request.adapters.size() == 2);
    CHECK(o.request.adapters[0].file == "a,b");
    CHECK(o.request.adapters[1].strength == -1.0f);
    CHECK(o.request.adapters[1].include.empty());
    CHECK_FALSE(o.request.strict_adapters);
    arguments.insert(arguments.end(), filters.begin(), filters.end());
    arguments.push_back("--lora-strict");
    o = options_of(arguments);
    CHECK(o.request.strict_adapters);
    for (const Adapter& adapter : o.request.adapters) {
        CHECK(adapter.include == "double");
        CHECK(adapter.exclude == "mlp");
        CHECK(adapter.block_strengths == "double=0.5");
    }
    // As redo does: stored adapters keep what is not given.
    GenerateOptions again = options_of({"--lora-exclude", ""}, o);
    REQUIRE(again.request.adapters.size() == 2);
    CHECK(again.request.adapters[0].include == "double");
    CHECK(again.request.adapters[0].exclude.empty());
    again = options_of({"--lora", "d"}, o);
    REQUIRE(again.request.adapters.size() == 1);
    CHECK(again.request.adapters[0].file == "d");
}

TEST_CASE("devices and types that are given replace those of a picture") {
    GenerateOptions stored;
    stored.model.load.device = "CUDA0";
    stored.model.load.type = "Q8_0";
    stored.model.load.transformer = {"CUDA0,CUDA1", "Q4_K"};
    stored.model.load.text_encoder = {"CPU", "F16"};
    stored.model.load.split = "2,1";
    LoadOptions load = options_of({"-p", "x"}, stored).model.load;
    CHECK(load.transformer.device == "CUDA0,CUDA1");
    CHECK(load.split == "2,1");
    load = options_of({"--device", "CPU", "--type-vae", "F32"}, stored).model.load;
    CHECK(load.device == "CPU");
    CHECK(load.transformer.device.empty());
    CHECK(load.text_encoder.device.empty());
    CHECK(load.split.empty());
    CHECK(load.transformer.type == "Q4_K");
    CHECK(load.vae.type == "F32");
    load = options_of({"--device-diffusion", "CUDA1", "--type", "F16"}, stored).model.load;
    CHECK(load.transformer.device == "CUDA1");
    CHECK(load.split.empty());
    CHECK(load.text_encoder.device == "CPU");
    CHECK(load.type == "F16");
    CHECK(load.transformer.type.empty());
}

TEST_CASE("options about LoRAs without any are refused") {
    CHECK(kind_of([] {
              options_of({"-p", "x", "--lora-include", "double"});
          }) == ErrorKind::bad_argument);
    CHECK(kind_of([] { options_of({"-p", "x", "--lora-strict"}); }) == ErrorKind::bad_argument);
    CHECK_NOTHROW(options_of({"--lora-strict"}));  // a session may add some
    CHECK(kind_of([] {
              options_of({"-p", "x", "--lora-dir", "/no/such/folder"});
          }) == ErrorKind::bad_file);
    CHECK(kind_of([] { options_of({"-p", "x", "--lora", ""}); }) == ErrorKind::bad_argument);
}

TEST_CASE("names of pictures are filled in") {
    CHECK(output_name("a.png", 7, 2) == "a.png");
    CHECK(output_name("a-{seed}.png", 7, 2) == "a-7.png");
    CHECK(output_name("a-%d.png", 7, 2) == "a-2.png");
    CHECK(output_name("%03d-{seed}.jpg", 18446744073709551615u, 12) ==
          "012-18446744073709551615.jpg");
    CHECK(output_name("%2d.png", 7, 1234) == "1234.png");
    CHECK(output_name("100%%.png", 7, 1) == "100%.png");
    CHECK(output_name("{seed.png", 7, 1) == "{seed.png");
    CHECK(with_number("a/b.png", 1234) == "a/b-1234.png");
    for (const char* wrong : {"%", "%x.png", "a%", "%5%.png", "%123d.png", "%-3d.png", "%s.png"}) {
        CAPTURE(wrong);
        CHECK(kind_of([&] { output_name(wrong, 0, 1); }) == ErrorKind::bad_argument);
    }
}

TEST_CASE("several pictures under one name get numbers") {
    CHECK(pattern_of_several("a.png") == "a-%03d.png");
    CHECK(pattern_of_several("b.c/a.png") == "b.c/a-%03d.png");
    CHECK(pattern_of_several("100%%.png") == "100%%-%03d.png");
    for (const char* distinct : {"a-{seed}.png", "a-%d.png", "%03d/a.png", "/dev/null"}) {
        CHECK(pattern_of_several(distinct) == distinct);
    }
    CHECK(has_number("%d/a.png"));
    CHECK_FALSE(has_number("100%%d-{seed}.png"));
}

TEST_CASE("a name is tried without leaving a trace") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "there.PNG", std::string_view("earlier"));
    check_output_pattern((folder / "new-%03d.jpeg").string());
    check_output_pattern((folder / "there.PNG").string());
    check_output_pattern((folder / "new/%03d/{seed}.png").string());
    CHECK(folder.names() == std::vector<std::string>{"there.PNG"});
    CHECK(test::read_file(folder / "there.PNG") == test::bytes_of("earlier"));
    fs::create_directory(folder / "x.png");
    CHECK(kind_of([&] { check_output_file(folder / "x.png"); }) == ErrorKind::bad_file);
    CHECK(kind_of([&] { check_output_file(folder / "there.PNG/x.png"); }) == ErrorKind::bad_file);
    CHECK(kind_of([&] { check_output_file(folder / "x.tiff"); }) == ErrorKind::bad_argument);
    CHECK_NOTHROW(check_output_file("/dev/null"));
}

TEST_CASE("numbers continue after the existing ones") {
    const test::TemporaryFolder folder;
    for (const char* name : {"a-001.png", "a-007.png", "a-3.png", "xa-020.png", "a-030.jpg",
                             "b-12-99.png", "a-99999999999.png", "a-.png"}) {
        test::write_file(folder / name, std::string_view("earlier"));
    }
    const auto names = [&](const char* pattern) {
        return OutputNames((folder / pattern).string(), OutputNames::Existing::kept);
    };
    OutputNames a = names("a-%03d.png");
    CHECK(a.next_number() == 8);
    CHECK(a.next(5) == folder / "a-008.png");
    CHECK(a.next(5) == folder / "a-009.png");
    // Somebody else draws into the same folder.
    test::write_file(folder / "a-015.png", std::string_view("by another"));
    CHECK(a.next(5) == folder / "a-016.png");
    CHECK(names("b-%d-{seed}.png").next(5) == folder / "b-13-5.png");
    CHECK(names("c (%d)+.png").next(5) == folder / "c (1)+.png");
    OutputNames replaced((folder / "a-%03d.png").string(), OutputNames::Existing::replaced);
    CHECK(replaced.next_number() == 1);
    CHECK(replaced.next(5) == folder / "a-001.png");
    CHECK(replaced.next(5) == folder / "a-002.png");
}

TEST_CASE("numbers in names of folders go on, too") {
    const test::TemporaryFolder folder;
    for (const char* name : {"run-1/7", "run-4/8", "run-9"}) {
        fs::create_directories(folder / name);
    }
    test::write_file(folder / "run-4/8/05.png", std::string_view("earlier"));
    const auto next = [&](const char* pattern) {
        return OutputNames((folder / pattern).string(), OutputNames::Existing::kept).next_number();
    };
    CHECK(next("run-%d/a.png") == 10);
    CHECK(next("run-4/{seed}/%02d.png") == 6);
    CHECK(next("run-4/8/../{seed}/%02d.png") == 6);
    CHECK(next("run-5/{seed}/%02d.png") == 1);
}

TEST_CASE("a seed that repeats does not repeat its name") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "7.png", std::string_view("earlier"));
    const std::string pattern = (folder / "{seed}.png").string();
    OutputNames replaced(pattern, OutputNames::Existing::replaced);
    CHECK(replaced.next(7) == folder / "7.png");
    CHECK(replaced.next(7) == folder / "7-002.png");
    OutputNames kept(pattern, OutputNames::Existing::kept);
    CHECK(kept.keeps_existing());
    CHECK(kept.next(7) == folder / "7-002.png");
    CHECK(kept.next(7) == folder / "7-003.png");
    OutputNames device("/dev/null", OutputNames::Existing::kept);
    CHECK_FALSE(device.keeps_existing());
    CHECK(device.next(7) == "/dev/null");
    CHECK(device.next(7) == "/dev/null");
}

#ifndef _WIN32
// Drops root's privileges while the object exists.
class Unprivileged {
  public:
    Unprivileged() : own_(geteuid()) { REQUIRE((own_ != 0 || seteuid(65534) == 0)); }
    ~Unprivileged() { REQUIRE(seteuid(own_) == 0); }
    Unprivileged(const Unprivileged&) = delete;
    Unprivileged& operator=(const Unprivileged&) = delete;

  private:
    uid_t own_;
};

TEST_CASE("hashes that cannot be remembered are warned about, and still given") {
    const test::TemporaryFolder folder;
    const fs::path model = folder / "vae.safetensors";
    fs::copy_file(test::fixture("klein/vae.safetensors"), model);
    fs::permissions(model, fs::perms{0444});
    test::write_file(folder / "hashes.json", std::string_view("{}"));
    fs::permissions(folder / "hashes.json", fs::perms::none);
    std::vector<std::string> warnings;
    const ScopedLog collected([&](LogLevel, const std::string& line) { warnings.push_back(line); });
    ModelFiles files;
    files.vae = model;
    const std::string alone = ModelHashes(files, "").get(model);
    CHECK(alone.size() == 64);
    CHECK(warnings.empty());
    {
        const Unprivileged user;
        CHECK(ModelHashes(files, folder.path()).get(model) == alone);
    }
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].find("hashes.json") != std::string::npos);
}
#endif

TEST_CASE("a model file that went away costs its hash, not the picture") {
    const test::TemporaryFolder folder;
    std::vector<std::string> warnings;
    const ScopedLog collected([&](LogLevel, const std::string& line) { warnings.push_back(line); });
    const fs::path gone = folder / "gone.gguf";
    ModelFiles files;
    files.vae = gone;
    CHECK(ModelHashes(files, "").get(gone).empty());
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].find("gone.gguf") != std::string::npos);
}

TEST_CASE("a run that ends hands the log back") {
    std::string told;
    const ScopedLog collected([&](LogLevel, const std::string& line) { told += line; });
    // Refused after the display was made: no such ending of a picture's name.
    std::vector<std::string> arguments = {"flux2", "-p", "x", "-o", "x.txt"};
    std::vector<char*> argv;
    for (std::string& argument : arguments) {
        argv.push_back(argument.data());
    }
    CHECK(test::error_of([&] { generate(static_cast<int>(argv.size()), argv.data()); }).kind ==
          ErrorKind::bad_argument);
    log(LogLevel::warning, "afterwards");
    CHECK(told == "afterwards");
}

TEST_CASE("the bar grows with the share and tells the time left") {
    Step step{.stage = Stage::denoise, .what = "", .share = 0.25, .step = 1, .n_steps = 4};
    CHECK(bar_line(step, "", 5) == "denoising  [======                  ] 1/4  15.0 s left");
    CHECK(bar_line(step, "2/9", 5).starts_with("2/9  denoising  [======"));
    step.share = 0;
    CHECK(bar_line(step, "", 5) == "denoising  [                        ] 1/4");
    step.share = 1;
    CHECK(bar_line(step, "", 5) == "denoising  [========================] 1/4  0.0 s left");
    for (const double beyond : {-0.5, 1.5, 1e300}) {
        step.share = beyond;
        CHECK(bar_line(step, "", 5).size() >= 24);
    }
    const Step loading{.stage = Stage::load, .what = "transformer"};
    CHECK(bar_line(loading, "", 5) == "loading the transformer ...");
}

}  // namespace
}  // namespace flux2::cli
