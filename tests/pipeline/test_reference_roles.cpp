// What references are for: the sentences in the prompt, and what is refused.
#include "pipeline/reference_roles.hpp"

#include "support/cli.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flux2 {
namespace {

Request with_roles(const std::vector<std::string>& roles) {
    Request request;
    request.references.resize(roles.size());
    request.reference_roles = roles;
    return request;
}

std::string full(const std::string& prompt, const std::vector<std::string>& roles) {
    return with_reference_sentences(prompt, with_roles(roles));
}

TEST_CASE("each role adds its sentence with the number of its picture") {
    CHECK(full("a house.", {"style"}) == "a house. Apply the style from image 1.");
    CHECK(full("a house.", {"pose", "", "style"}) ==
          "a house. Match the pose in image 1. Apply the style from image 3.");
    CHECK(full("a house", {"style"}) == "a house. Apply the style from image 1.");
    CHECK(full("a house,", {"style"}) == "a house, Apply the style from image 1.");
    CHECK(full("", {"depth"}) == "Match the depth map in image 1.");
    CHECK(full("a house", {"", ""}) == "a house");
    CHECK(full("", {}) == "");
}

TEST_CASE("a sentence of the caller's own is numbered in every place") {
    CHECK(full("x", {"", "Use the hat of image {}; image {} has it."}) ==
          "x. Use the hat of image 2; image 2 has it.");
    CHECK(full("{}", {"{}"}) == "{} 1");
}

TEST_CASE("references count from 2 when the picture to start from is the first") {
    Request request = with_roles({"style"});
    request.inpaint.emplace();
    CHECK(with_reference_sentences("x", request) == "x. Apply the style from image 2.");
    request.inpaint.reset();
    request.outpaint.emplace();
    CHECK(with_reference_sentences("x", request) == "x. Apply the style from image 2.");
}

TEST_CASE("every role is a word whose sentence has a place for the number") {
    for (const ReferenceRole& role : reference_roles()) {
        CAPTURE(role.word);
        CHECK(role.word.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos);
        CHECK(role.sentence.find("{}") != std::string::npos);
    }
}

TEST_CASE("an unknown role names the known ones, and each reference or none has a role") {
    auto error = test::error_of([] { full("x", {"style", "stile"}); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("reference 2: there is no role 'stile'; use style, pose, depth"));
    error = test::error_of([] { full("x", {"Use the hat."}); });
    CHECK(error.mentions("a sentence with {}"));
    Request request = with_roles({"style", "pose"});
    request.references.resize(3);
    error = test::error_of([&] { with_reference_sentences("x", request); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("2 roles are given for 3 references"));
}

TEST_CASE("prompts that are encoded ahead have the sentences that the picture asks for") {
    const test::TemporaryFolder folder;
    LoadOptions options;
    options.device = "CPU";
    Pipeline pipeline = Pipeline::load(
        {test::fixture("klein/flux2.safetensors"), test::write_reading_encoder(folder),
         test::fixture("klein/vae.safetensors")},
        options);
    Request request;
    request.width = request.height = 64;
    request.steps = 1;
    request.text_length = 16;
    request.references = {load_image(test::fixture("klein/ref_0.png"))};
    request.reference_roles = {"style"};
    pipeline.encode_prompts(request, {"a house"});
    request.prompt = "a house";
    Result result = pipeline.generate(request);
    CHECK(result.prompt_cached);
    CHECK(result.prompt == "a house. Apply the style from image 1.");
    request.reference_roles.clear();
    result = pipeline.generate(request);
    CHECK_FALSE(result.prompt_cached);
    CHECK(result.prompt == "a house");
}

}  // namespace
}  // namespace flux2
