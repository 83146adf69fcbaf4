// What the command line is made of: values, names of pictures, what is shown.
#include "base/byte_size.hpp"
#include "display.hpp"
#include "options.hpp"
#include "output_name.hpp"
#include "support.hpp"

#include <doctest/doctest.h>

namespace flux2::cli {
namespace {

ErrorKind kind_of(const std::function<void()>& function) {
    return test::error_of(function).kind;
}

TEST_CASE("numbers of bytes are read in powers of 1000") {
    const auto bytes = [](const char* text) { return parse_bytes(text, "amount"); };
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

TEST_CASE("names of pictures are filled in") {
    CHECK(output_name("a.png", 7, 1, 1) == "a.png");
    CHECK(output_name("a.png", 7, 2, 3) == "a-002.png");
    CHECK(output_name("b.c/a.png", 7, 2, 3) == "b.c/a-002.png");
    CHECK(output_name("a-{seed}.png", 7, 2, 3) == "a-7.png");
    CHECK(output_name("a-%d.png", 7, 2, 3) == "a-2.png");
    CHECK(output_name("%03d-{seed}.jpg", 18446744073709551615u, 12, 20) ==
          "012-18446744073709551615.jpg");
    CHECK(output_name("%2d.png", 7, 1234, 9999) == "1234.png");
    CHECK(output_name("100%%.png", 7, 1, 1) == "100%.png");
    CHECK(output_name("100%%.png", 7, 2, 2) == "100%-002.png");
    CHECK(output_name("{seed.png", 7, 1, 1) == "{seed.png");
    CHECK(with_number("a/b.png", 1234) == "a/b-1234.png");
    for (const char* wrong : {"%", "%x.png", "a%", "%5%.png", "%123d.png", "%-3d.png", "%s.png"}) {
        CAPTURE(wrong);
        CHECK(kind_of([&] { output_name(wrong, 0, 1, 1); }) == ErrorKind::bad_argument);
    }
}

TEST_CASE("a name is tried without leaving a trace") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "there.PNG", std::string_view("earlier"));
    check_output_pattern((folder / "new-%03d.jpeg").string());
    check_output_pattern((folder / "there.PNG").string());
    CHECK(folder.names() == std::vector<std::string>{"there.PNG"});
    CHECK(test::read_file(folder / "there.PNG") == test::bytes_of("earlier"));
    std::filesystem::create_directory(folder / "x.png");
    CHECK(kind_of([&] { check_output_file(folder / "x.png"); }) == ErrorKind::bad_file);
    CHECK(kind_of([&] { check_output_file(folder / "none/x.png"); }) == ErrorKind::bad_file);
    CHECK(kind_of([&] { check_output_file(folder / "x.webp"); }) == ErrorKind::bad_argument);
}

TEST_CASE("times are short to read") {
    CHECK(readable_seconds(0) == "0.0 s");
    CHECK(readable_seconds(1.24) == "1.2 s");
    CHECK(readable_seconds(59.9) == "59.9 s");
    CHECK(readable_seconds(60) == "1:00 min");
    CHECK(readable_seconds(185.7) == "3:05 min");
    CHECK(readable_seconds(7200) == "120:00 min");
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
