// Text features from the encoder, from memory and from the cache: equal, or computed again.
#include "pipeline/features.hpp"

#include <flux2/flux2.hpp>
#include "base/log.hpp"
#include "base/utf8.hpp"
#include "pipeline/prompt.hpp"
#include "support/cli.hpp"
#include "support/folders.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// The klein fixture with a text encoder that reads prompts, in a folder of its own.
struct SmallModel {
    test::TemporaryFolder folder;
    ModelFiles files{test::fixture("klein/flux2.safetensors"), test::write_reading_encoder(folder),
                     test::fixture("klein/vae.safetensors")};
    LoadOptions options;

    SmallModel() {
        options.device = "CPU";
        options.threads = 1;
        options.cache_folder = folder / "cache";
    }
    Pipeline load() const { return Pipeline::load(files, options); }
    std::string facts(Placement placement = Placement::device) const {
        const Model model = open_model(files, "");
        LoadedModel loaded_model(model, options);
        loaded_model.set_placement(Part::text_encoder, placement);
        return encoder_facts(model, loaded_model);
    }
    bool repacks(const std::string& type) const {
        const Model model = open_model(files, "");
        const auto layout = [&](bool repack) {
            LoadOptions load = options;
            load.type = type;
            load.repack = repack;
            return LoadedModel(model, load).text_encoder_layout();
        };
        return layout(true) != layout(false);
    }
};

Request small_request(const std::string& prompt) {
    Request request;
    request.prompt = prompt;
    request.width = request.height = 64;
    request.steps = 1;
    request.seed = 1;
    request.text_length = 32;
    return request;
}

// Changes a file, keeping its size and its time.
void change_quietly(const fs::path& file, const std::function<void(test::Bytes&)>& change) {
    const auto time = fs::last_write_time(file);
    test::Bytes bytes = test::read_file(file);
    const size_t size = bytes.size();
    change(bytes);
    REQUIRE(bytes.size() == size);
    test::write_file(file, bytes);
    fs::last_write_time(file, time);
}

// Where the first bytes after this text are.
size_t behind(const test::Bytes& bytes, const std::string& text) {
    const test::Bytes wanted = test::bytes_of(text);
    const auto found = std::search(bytes.begin(), bytes.end(), wanted.begin(), wanted.end());
    REQUIRE(found != bytes.end());
    return static_cast<size_t>(found - bytes.begin()) + wanted.size();
}

TEST_CASE("a prompt is cached only when its features were there already") {
    SmallModel small;
    small.options.keep_loaded = true;
    Pipeline pipeline = small.load();
    CHECK(!pipeline.generate(small_request("red")).prompt_cached);
    // The text encoder is still loaded, but this prompt must be encoded.
    CHECK(!pipeline.generate(small_request("blue")).prompt_cached);
    CHECK(pipeline.generate(small_request("red")).prompt_cached);
    CHECK(small.load().generate(small_request("blue")).prompt_cached);
}

TEST_CASE("a prompt that is cut is warned about wherever its features come from") {
    const SmallModel small;
    Request request = small_request("one two three red green blue");
    request.text_length = 8;
    Pipeline pipeline = small.load();
    for (const char* source : {"encoder", "memory", "disk"}) {
        CAPTURE(source);
        int n = 0;
        const ScopedLog told([&](LogLevel level, const std::string& line) {
            n += level == LogLevel::warning &&
                 line.find("this end of it is not used: \"") != std::string::npos &&
                 line.find("blue") != std::string::npos;
        });
        Result result = source == std::string("disk") ? small.load().generate(request)
                                                      : pipeline.generate(request);
        CHECK(result.prompt_cached == (source != std::string("encoder")));
        CHECK(n == 1);
    }
}

TEST_CASE("the line about a prompt that is cut holds whole letters only") {
    const SmallModel small;
    Request request = small_request("");
    request.text_length = 16;
    std::vector<std::string> prompts;
    for (size_t shift = 0; shift < 8; ++shift) {
        std::string prompt(shift, 'a');
        for (int i = 0; i < 80; ++i) {
            prompt += shift % 2 == 0 ? "\u7ea2\u8272" : "\U0001F332\u044f";
        }
        prompts.push_back(prompt);
    }
    std::vector<std::string> lines;
    const ScopedLog told([&](LogLevel level, const std::string& line) {
        if (level == LogLevel::warning && line.find("is not used: \"") != std::string::npos) {
            lines.push_back(line);
        }
    });
    CHECK(small.load().encode_prompts(request, prompts) == prompts.size());
    REQUIRE(lines.size() == prompts.size());
    for (size_t i = 0; i < lines.size(); ++i) {
        const size_t begin = lines[i].find('"') + 1;
        const std::string quoted = lines[i].substr(begin, lines[i].rfind(" ...\"") - begin);
        CAPTURE(lines[i]);
        CHECK(is_utf8(quoted));
        CHECK(quoted.size() > 290);
        CHECK(prompts[i].find(quoted) != std::string::npos);
    }
}

TEST_CASE("the tokenizer is built once for a model, whatever becomes of its file") {
    SmallModel small;
    small.options.cache_folder.clear();
    Pipeline pipeline = small.load();
    const Image before = pipeline.generate(small_request("red")).image;
    fs::remove(small.folder / "tokenizer.json");
    CHECK(!pipeline.generate(small_request("blue")).prompt_cached);
    CHECK(pipeline.generate(small_request("red")).image.rgb == before.rgb);
    // Without the file only a model that has read it can do without.
    Pipeline without = small.load();
    CHECK(test::error_of([&] { without.generate(small_request("red")); }).mentions("tokenizer"));
}

TEST_CASE("threads share the tokenizer of a model") {
    const SmallModel small;
    const Model model = open_model(small.files, "");
    std::vector<std::future<const Tokenizer*>> users;
    for (int i = 0; i < 4; ++i) {
        users.push_back(std::async(std::launch::async,
                                   [&] { return &model.tokenizer->get(*model.text_encoder); }));
    }
    const Tokenizer* first = users.front().get();
    REQUIRE(first != nullptr);
    for (size_t i = 1; i < users.size(); ++i) {
        CHECK(users[i].get() == first);
    }
    CHECK(first->encode("red") == load_tokenizer(*model.text_encoder).encode("red"));
    CHECK(model.tokenizer->hash(*model.text_encoder) == tokenizer_hash(*model.text_encoder));
}

TEST_CASE("all prompts that are encoded ahead are held until they are used") {
    SmallModel small;
    small.options.cache_folder.clear();
    Pipeline pipeline = small.load();
    std::vector<std::string> prompts;
    for (int i = 0; i < 40; ++i) {
        prompts.push_back("red " + std::to_string(i));
    }
    REQUIRE(prompts.size() > 2 * FeatureStore::kHeld);
    CHECK(pipeline.encode_prompts(small_request(""), prompts) == prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
        CAPTURE(prompts[i]);
        CHECK(pipeline.generate(small_request(prompts[i])).prompt_cached);
        if (i % 10 == 0) {  // others come between
            CHECK(!pipeline.generate(small_request("other " + prompts[i])).prompt_cached);
        }
    }
    // Those that were used first are dropped, and those of a call that the next one replaced.
    CHECK(!pipeline.generate(small_request(prompts.front())).prompt_cached);
    CHECK(pipeline.generate(small_request(prompts.back())).prompt_cached);
    CHECK(pipeline.encode_prompts(small_request(""), {prompts[0], "new"}) == 2);
    CHECK(pipeline.encode_prompts(small_request(""), {"newer"}) == 1);
    CHECK(pipeline.generate(small_request("newer")).prompt_cached);
}

TEST_CASE("a damaged entry of the cache gives the same picture as none") {
    const SmallModel small;
    const Image whole = small.load().generate(small_request("red")).image;
    int n_entries = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(small.folder / "cache")) {
        ++n_entries;
        change_quietly(entry.path(),
                       [](test::Bytes& bytes) { bytes[bytes.size() / 2] ^= std::byte{0x40}; });
    }
    REQUIRE(n_entries == 1);
    const Result again = small.load().generate(small_request("red"));
    CHECK(!again.prompt_cached);
    CHECK(again.image.rgb == whole.rgb);
    CHECK(small.load().generate(small_request("red")).prompt_cached);
}

TEST_CASE("another tokenizer beside the same weights makes features again") {
    const SmallModel small;
    small.load().generate(small_request("red"));
    CHECK(small.load().generate(small_request("red")).prompt_cached);
    const fs::path file = small.folder / "tokenizer.json";
    nlohmann::json tokenizer = nlohmann::json::parse(std::ifstream(file));
    std::swap(tokenizer["model"]["vocab"]["r"], tokenizer["model"]["vocab"]["d"]);
    test::write_file(file, tokenizer.dump());
    CHECK(!small.load().generate(small_request("red")).prompt_cached);
}

// The file with the token embeddings negated: of the same size.
test::Bytes negated_embeddings(const fs::path& text_encoder) {
    auto tensors = test::tensors_of(text_encoder);
    for (test::TestTensor& tensor : tensors) {
        if (tensor.name == "model.embed_tokens.weight") {
            REQUIRE(tensor.type == TensorType::bf16);
            for (size_t i = 1; i < tensor.data.size(); i += 2) {
                tensor.data[i] ^= std::byte{0x80};
            }
        }
    }
    const test::Bytes bytes = test::safetensors_of(tensors);
    REQUIRE(bytes.size() == fs::file_size(text_encoder));
    return bytes;
}

TEST_CASE("features of files that are replaced in use are not those of the new files") {
    SmallModel small;
    const fs::path file = small.files.text_encoder;
    const auto time = fs::last_write_time(file);
    const test::Bytes new_bytes = negated_embeddings(file);
    const auto without_cache = [&] {
        LoadOptions options = small.options;
        options.cache_folder.clear();
        return Pipeline::load(small.files, options).generate(small_request("red")).image.rgb;
    };
    const auto before = without_cache();
    Pipeline in_use = small.load();
    // Another file of the same name, size and time.
    test::write_file(small.folder / "new", new_bytes);
    fs::last_write_time(small.folder / "new", time);
    fs::rename(small.folder / "new", file);
    const auto after = without_cache();
    REQUIRE(before != after);
    CHECK(in_use.generate(small_request("red")).image.rgb == before);
    const Result fresh = small.load().generate(small_request("red"));
    CHECK(!fresh.prompt_cached);
    CHECK(fresh.image.rgb == after);
    CHECK(small.load().generate(small_request("red")).prompt_cached);
    // And the other way round: the old pipeline does not take the features of the new file.
    CHECK(!small.load().generate(small_request("blue")).prompt_cached);
    CHECK(!in_use.generate(small_request("blue")).prompt_cached);
}

TEST_CASE("features of a file that is written to in use are not kept") {
    const SmallModel small;
    const fs::path file = small.files.text_encoder;
    const auto time = fs::last_write_time(file);
    const test::Bytes new_bytes = negated_embeddings(file);
    Pipeline in_use = small.load();
    test::write_file(file, new_bytes);
    fs::last_write_time(file, time + std::chrono::seconds(2));
    int n_told = 0;
    {
        const ScopedLog told([&](LogLevel level, const std::string& line) {
            n_told += level == LogLevel::warning &&
                      line.find("was written to while it is in use") != std::string::npos;
        });
        CHECK(!in_use.generate(small_request("red")).prompt_cached);
    }
    CHECK(n_told == 1);
    CHECK(!small.load().generate(small_request("red")).prompt_cached);
    CHECK(small.load().generate(small_request("red")).prompt_cached);
}

TEST_CASE("another configuration beside the same weights makes features again") {
    const SmallModel small;
    const auto cached_with = [&](const char* config) {
        test::write_file(small.folder / "config.json", std::string_view(config));
        return small.load().generate(small_request("red")).prompt_cached;
    };
    CHECK(!cached_with(R"({"rope_theta": 1000000.0})"));
    CHECK(cached_with(R"({"rope_theta": 1000000.0, "architectures": []})"));
    CHECK(!cached_with(R"({"rope_theta": 1000001.0})"));
    CHECK(!cached_with(R"({"rms_norm_eps": 1e-5})"));
    CHECK(!cached_with(R"({"flux2": {"layers": [8, 18, 27]}})"));
}

TEST_CASE("keys inside a GGUF that change features change their key") {
    SmallModel small;
    const fs::path file = small.folder / "te.gguf";
    fs::copy_file(fs::path(test::tiny_model()) / "text-encoder-bf16.gguf", file);
    small.files = {fs::path(test::tiny_model()) / "flux2-tiny-bf16.gguf", file,
                   fs::path(test::tiny_model()) / "vae-bf16.gguf"};
    const std::string before = small.facts();
    CHECK(small.facts() == before);
    change_quietly(file, [](test::Bytes& bytes) {
        // Behind the key stands the number of its type, then the float.
        const float theta = 2e6f;
        std::memcpy(&bytes[behind(bytes, "qwen3.rope.freq_base") + 4], &theta, sizeof(theta));
    });
    const std::string other_theta = small.facts();
    CHECK(other_theta != before);
    change_quietly(file, [](test::Bytes& bytes) {
        bytes[behind(bytes, "ball oo") - 1] = std::byte{'a'};  // a merge
    });
    CHECK(small.facts() != other_theta);
}

TEST_CASE("files, place, type and layout of the weights change the key of features") {
    SmallModel small;
    const std::string before = small.facts();
    CHECK(small.facts(Placement::streamed) != before);
    CHECK(small.facts(Placement::unpacked) != before);
    small.options.type = "Q8_0";
    const std::string repacked = small.facts();
    CHECK(repacked != before);
    small.options.repack = false;
    const std::string plain = small.facts();
    // A CPU without a layout of its own for this type leaves matrices as they are.
    CHECK((plain != repacked) == small.repacks("Q8_0"));
    small.options = SmallModel().options;
    fs::last_write_time(small.files.text_encoder, fs::file_time_type::clock::now());
    CHECK(small.facts() != before);
}

}  // namespace
}  // namespace flux2
