// Cases that only some CPUs, builds or machines can run. Elsewhere they are skipped, and a line
// says so, which .ci/not_run collects; so do lines of those that ran:
//     not run here: NAME: needs AMX
//     ran here: NAME
#pragma once

#include <doctest/doctest.h>

namespace flux2::test {

struct Needs {
    bool is_here;
    const char* what;  // "needs AMX"

    void fill(doctest::detail::TestCase& test) const {
        test.m_description = what;
        test.m_skip = test.m_skip || !is_here;
    }
};

// For TEST_CASE("..." * test::needs(cpu::has_amx(), "needs AMX")).
inline Needs needs(bool is_here, const char* what) {
    return {is_here, what};
}

}  // namespace flux2::test
