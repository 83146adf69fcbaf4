// Numbers in texts are the same in every locale of the host program, C's and C++'s.
#include "base/byte_size.hpp"
#include "base/check.hpp"
#include "base/parse_number.hpp"
#include "base/run_program.hpp"
#include "base/text_stream.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <clocale>
#include <cstdlib>
#include <locale>
#include <string>

namespace flux2 {
namespace {

// As in Germany: 1.234.567,5
class GermanNumbers : public std::numpunct<char> {
  protected:
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
};

class GermanStreams {
  public:
    GermanStreams() : before_(std::locale::global({std::locale(), new GermanNumbers})) {}
    ~GermanStreams() { std::locale::global(before_); }
    GermanStreams(const GermanStreams&) = delete;
    GermanStreams& operator=(const GermanStreams&) = delete;

  private:
    std::locale before_;
};

void check_numbers() {
    CHECK(concat(1234567, " ", 3.5, " ", 0.25f) == "1234567 3.5 0.25");
    TextStream text;
    text << 1234.5;
    CHECK(text.str() == "1234.5");
    CHECK(gigabytes(1'500'000'000'000) == "1500 GB");
    CHECK(gigabytes(1'250'000'000) == "1.25 GB");
    CHECK(parse_float("x", "0.5") == 0.5f);
    CHECK(parse_double("x", "-1.25e3") == -1250.0);
    CHECK(parse_bytes("x", "1.5G", "size") == 1'500'000'000);
    CHECK(double_in("1234.5") == 1234.5);
    for (const char* wrong : {"0,5", "1.234,5", "1.2.3", "", "x", "1e", "nan", "inf", "1e999"}) {
        CAPTURE(wrong);
        CHECK(!double_in(wrong));
        CHECK(test::error_of([&] { parse_float("x", wrong); }).kind == ErrorKind::bad_argument);
    }
    CHECK(test::error_of([] { parse_bytes("x", "1,5G", "size"); }).kind == ErrorKind::bad_argument);
}

TEST_CASE("numbers are read and printed alike when C++ streams print them as in Germany") {
    const GermanStreams german;
    std::ostringstream plain;
    plain << 1234.5;
    REQUIRE(plain.str() == "1.234,5");
    check_numbers();
}

#ifndef _WIN32
TEST_CASE("numbers are read and printed alike in a C locale with a decimal comma") {
    const char* const kGerman = "de_DE.UTF-8";
    const std::string before = std::setlocale(LC_NUMERIC, nullptr);
    const test::TemporaryFolder folder;
    if (std::setlocale(LC_NUMERIC, kGerman) == nullptr && std::getenv("LOCPATH") == nullptr &&
        std::filesystem::exists("/usr/share/i18n/locales/de_DE")) {
        run_program("/usr/bin/localedef",
                    {"-i", "de_DE", "-f", "UTF-8", (folder / kGerman).string()});
        setenv("LOCPATH", folder.path().c_str(), 1);
        std::setlocale(LC_NUMERIC, kGerman);
        unsetenv("LOCPATH");
    }
    const bool has_comma = std::string(std::localeconv()->decimal_point) == ",";
    if (!has_comma) {
        MESSAGE("no German locale can be made here: only the present one was tried");
    }
    CHECK((std::strtod("0,5", nullptr) == 0.5) == has_comma);
    check_numbers();
    std::setlocale(LC_NUMERIC, before.c_str());
}
#endif

}  // namespace
}  // namespace flux2
