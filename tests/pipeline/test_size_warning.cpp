// Pictures larger than the models were made for.
#include "pipeline/size_warning.hpp"

#include <flux2/flux2.hpp>
#include "base/log.hpp"
#include "support/folders.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flux2 {
namespace {

TEST_CASE("pictures beyond 4 megapixels are warned about") {
    Job job;
    job.width = job.height = 2048;
    CHECK(size_warning(job).empty());
    job.width = 4096;
    job.height = 1024;
    CHECK(size_warning(job).empty());
    job.height = 1040;
    CHECK(
        size_warning(job).find("4096x1040 has 4.3 megapixels, and FLUX.2 was made for up to 4 ") !=
        std::string::npos);
    job.height = 4096;
    CHECK(size_warning(job).find("4096x4096 has 16.8 megapixels") != std::string::npos);
    job.height = 4112;  // refused with an error
    CHECK(size_warning(job).empty());
}

TEST_CASE("the warning comes once for a size") {
    std::vector<std::string> lines;
    const ScopedLog log([&](LogLevel level, const std::string& line) {
        if (level == LogLevel::warning) {
            lines.push_back(line);
        }
    });
    LoadOptions options;
    options.device = "CPU";
    Pipeline pipeline = Pipeline::load(find_model(test::tiny_model()).files, options);
    Request request;
    request.width = 2048;
    request.height = 2064;
    pipeline.plan(request);
    pipeline.plan(request);
    REQUIRE(lines.size() == 1);
    CHECK(lines.front().find("2048x2064") != std::string::npos);
    request.width = 2064;
    pipeline.plan(request);
    CHECK(lines.size() == 2);
}

}  // namespace
}  // namespace flux2
