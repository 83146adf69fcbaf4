// Arguments for programs of Windows, against the rules by which these split a command line.
#include "base/run_program.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flux2 {
namespace {

// As CommandLineToArgvW documents: 2n backslashes and a quote are n backslashes and the end or the
// start of a quoted part, 2n + 1 and a quote are n and a quote; other backslashes are plain.
std::vector<std::wstring> arguments_of(const std::wstring& line) {
    std::vector<std::wstring> arguments;
    bool quoted = false;
    bool inside = false;
    for (size_t i = 0; i < line.size(); ++i) {
        if (!quoted && line[i] == L' ') {
            inside = false;
            continue;
        }
        if (!inside) {
            arguments.emplace_back();
            inside = true;
        }
        size_t n_backslashes = 0;
        while (i < line.size() && line[i] == L'\\') {
            ++n_backslashes;
            ++i;
        }
        if (i < line.size() && line[i] == L'"') {
            arguments.back().append(n_backslashes / 2, L'\\');
            if (n_backslashes % 2 == 1) {
                arguments.back() += L'"';
            } else {
                quoted = !quoted;
            }
            continue;
        }
        arguments.back().append(n_backslashes, L'\\');
        if (n_backslashes > 0) {
            --i;
        } else {
            arguments.back() += line[i];
        }
    }
    return arguments;
}

TEST_CASE("the rules by which a line is split are the documented ones") {
    using Arguments = std::vector<std::wstring>;
    CHECK(arguments_of(LR"("abc" d e)") == Arguments{L"abc", L"d", L"e"});
    CHECK(arguments_of(LR"(a\b d"e f"g h)") == Arguments{LR"(a\b)", L"de fg", L"h"});
    CHECK(arguments_of(LR"(a\"b c d)") == Arguments{LR"(a"b)", L"c", L"d"});
    CHECK(arguments_of(LR"(a\\"b c" d e)") == Arguments{LR"(a\b c)", L"d", L"e"});
}

TEST_CASE("every argument comes out of a command line of Windows as it went in") {
    CHECK(quoted_for_windows(L"C:\\photos\\") == LR"("C:\photos\\")");
    const std::wstring letters = L"a \\\"";
    size_t n_checked = 0;
    for (size_t length = 0; length <= 5; ++length) {
        size_t n = 1;
        for (size_t i = 0; i < length; ++i) {
            n *= letters.size();
        }
        for (size_t number = 0; number < n; ++number) {
            std::wstring argument;
            for (size_t i = 0, rest = number; i < length; ++i, rest /= letters.size()) {
                argument += letters[rest % letters.size()];
            }
            const std::wstring line = quoted_for_windows(argument) + L" next";
            if (arguments_of(line) != std::vector<std::wstring>{argument, L"next"}) {
                FAIL("argument ", number, " of length ", length);
            }
            ++n_checked;
        }
    }
    CHECK(n_checked == 1 + 4 + 16 + 64 + 256 + 1024);
}

}  // namespace
}  // namespace flux2
