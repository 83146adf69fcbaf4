// The table of models, the user's own, and files of repositories.
#include "common/hub_reference.hpp"
#include "common/model_names.hpp"
#include "common/model_table.hpp"
#include "support/folders.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

ModelTable own_table() {
    return read_model_table(std::string(test::tiny_model()) + "/../models.json", {});
}

test::CaughtError refused(const std::string& text) {
    const test::TemporaryFolder folder;
    test::write_file(folder / "models.json", text);
    return test::error_of([&] { read_model_table(folder / "models.json", {}); });
}

}  // namespace

TEST_CASE("the table names every model with what goes with it") {
    const ModelTable table = own_table();
    for (const char* name :
         {"klein-4b", "klein-base-4b", "klein-9b", "klein-base-9b", "klein-9b-kv", "dev", "tiny"}) {
        CAPTURE(std::string(name));
        REQUIRE(table.find(name) != nullptr);
        const TableModel& model = *table.find(name);
        CHECK_FALSE(model.about.empty());
        CHECK_FALSE(model.transformer.licence.empty());
        for (const TableFile& file : model.transformer.files) {
            for (const TableFile& part : with_partners(model, file).files()) {
                CAPTURE(part.path);
                CHECK(part.repository.find('/') != std::string::npos);
                CHECK((part.sha256.empty() || part.sha256.size() == 64));
                CHECK((!part.bytes || *part.bytes > 1'000'000));
            }
        }
    }
    CHECK(table.find("klein-5b") == nullptr);
}

TEST_CASE("a name takes a type, and the text encoder's is the nearest") {
    const ModelTable table = own_table();
    const auto usual = find_named_model(table, "Klein-4B");
    REQUIRE(usual.has_value());
    CHECK(usual->name() == "klein-4b:Q4_K_M");
    CHECK(usual->text_encoder.type == "Q4_K_M");
    CHECK(find_named_model(table, "klein-4b:q4_0")->text_encoder.type == "Q4_K_M");
    CHECK(find_named_model(table, "klein-4b:Q6_K")->text_encoder.type == "Q8_0");
    CHECK(find_named_model(table, "klein-9b:BF16")->text_encoder.type == "BF16");
    CHECK(find_named_model(table, "klein-9b:BF16")->transformer.gated == true);
    CHECK_FALSE(find_named_model(table, "nothing").has_value());
    CHECK(find_named_model(table, "tiny")->files().empty());
    const test::CaughtError error = test::error_of([&] { find_named_model(table, "klein-4b:Q1"); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("Q4_K_M, Q4_0"));
}

TEST_CASE("a repository tells its model by the table or by its name") {
    const ModelTable table = own_table();
    const auto name = [&](const char* repository) {
        const TableModel* model = model_of_repository(table, repository);
        return model == nullptr ? "" : model->transformer.name;
    };
    CHECK(name("leejet/FLUX.2-klein-base-4B-GGUF") == "klein-base-4b");
    CHECK(name("someone/my-klein-9b-kv-tuned") == "klein-9b-kv");
    CHECK(name("someone/FLUX.2-klein-9B-tuned") == "klein-9b");
    CHECK(name("someone/else") == "");
}

TEST_CASE("the user's table adds models and replaces those of the same name") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "own.json", R"({
        "models": {"a": {"text_encoder": "e", "vae": "v", "files": [
                      {"type": "Q8_0", "repository": "o/a", "file": "a.gguf"}]},
                   "b": {"text_encoder": "e", "vae": "v", "files": [
                      {"type": "Q8_0", "repository": "o/b", "file": "b.gguf"}]}},
        "text_encoders": {"e": {"files": [{"type": "Q8_0", "repository": "o/e", "file": "e"}]}},
        "autoencoders": {"v": {"files": [{"type": "F32", "repository": "o/v", "file": "v"}]}}})");
    test::write_file(folder / "users.json", R"({
        "models": {"A": {"text_encoder": "e", "vae": "v", "files": [
                      {"type": "Q4_0", "repository": "u/a", "file": "a.gguf", "bytes": 5}]}}})");
    const ModelTable table = read_model_table(folder / "own.json", folder / "users.json");
    CHECK(table.names() == std::vector<std::string>{"b", "A"});
    CHECK(table.find("a")->transformer.files.front().repository == "u/a");
    CHECK(table.find("a")->transformer.files.front().bytes == 5);
    CHECK_FALSE(table.find("a")->transformer.files.front().gated.has_value());
    CHECK(table.find("a")->text_encoder.files.front().repository == "o/e");
}

TEST_CASE("a table with mistakes is refused with file and entry") {
    CHECK(refused("[]").mentions("models.json: is no valid JSON object"));
    CHECK(refused(R"({"model": {}})").mentions("has 'model', expected objects models"));
    CHECK(refused(R"({"models": {"a": {}}})").mentions("a has no list of \"files\""));
    CHECK(refused(R"({"models": {"a": {"files": [{"type": "Q8_0"}]}}})")
              .mentions("a has no \"repository\""));
    CHECK(refused(R"({"models": {"a": {"text_encoder": "e", "vae": "v", "files": [
              {"type": "Q8_0", "repository": "o/a", "file": "a"}]}}})")
              .mentions("a names the text_encoder e, which the table does not have"));
    CHECK(refused(R"({"models": {"a": {"files": [
              {"type": "Q8_0", "repository": "o/a", "file": "a", "bytes": "many"}]}}})")
              .mentions("a has \"bytes\" that are no number"));
}

TEST_CASE("owner/name:what means one file of a repository") {
    const std::vector<std::string> names = {
        "README.md",         "mmproj-F16.gguf",           "x-Q4_K_M.gguf",
        "x-Q4_K.gguf",       "sub/x-UD-Q4_K_XL.gguf",     "x-Q8_0-00001-of-00002.gguf",
        "y-F16.safetensors", "x-Q8_0-00002-of-00002.gguf"};
    const auto choose = [&](const std::string& text) {
        return choose_hub_file(parse_hub_reference(text), names);
    };
    CHECK(choose("o/n") == "x-Q4_K_M.gguf");
    CHECK(choose("o/n:q4_k") == "x-Q4_K.gguf");
    CHECK(choose("o/n:Q8_0") == "x-Q8_0-00001-of-00002.gguf");
    CHECK(choose("o/n:F16") == "y-F16.safetensors");
    CHECK(choose("o/n:sub/x-UD-Q4_K_XL.gguf") == "sub/x-UD-Q4_K_XL.gguf");
    CHECK(choose("o/n:x-UD-Q4_K_XL.gguf") == "sub/x-UD-Q4_K_XL.gguf");
    CHECK(test::error_of([&] { choose("o/n:Q2_K"); }).mentions("neither a file nor a type 'Q2_K'"));
    for (const char* wrong : {"n", "/n", "o/", "o/n/x", ":Q4"}) {
        CHECK(test::error_of([&] { choose(wrong); }).kind == ErrorKind::bad_argument);
    }
}

TEST_CASE("a file brings its parts and its tokenizer") {
    const std::vector<std::string> names = {"config.json",
                                            "model-00001-of-00002.safetensors",
                                            "model-00002-of-00002.safetensors",
                                            "model.safetensors.index.json",
                                            "sub/tokenizer.json",
                                            "tokenizer.json",
                                            "x-00001-of-00002.gguf",
                                            "x-00002-of-00002.gguf"};
    CHECK(companions_of("x-00001-of-00002.gguf", names) ==
          std::vector<std::string>{"x-00002-of-00002.gguf"});
    CHECK(companions_of("model-00001-of-00002.safetensors", names) ==
          std::vector<std::string>{"config.json", "model-00002-of-00002.safetensors",
                                   "model.safetensors.index.json", "tokenizer.json"});
}

}  // namespace flux2::cli
